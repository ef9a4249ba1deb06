"""Tables of results in Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
