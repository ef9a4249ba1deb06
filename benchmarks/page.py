"""Results as Markdown, and their place in docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["BEGIN", "END", "PageError", "read_results", "tables", "write_page"]

BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


class PageError(RuntimeError):
    """Results that cannot be shown."""


def read_results(
    out: Path, benchmarks: Sequence[ModuleType], *, whole: bool = False
) -> dict[str, dict[str, Any]]:
    """The results in ``out`` by benchmark.

    whole: raise :class:`PageError` when one is missing or was only a quick run.
    """
    found = {}
    for benchmark in benchmarks:
        file = out / f"{benchmark.NAME}.json"
        if file.exists():
            found[benchmark.NAME] = json.loads(file.read_text(encoding="utf-8"))
    missing = [b.NAME for b in benchmarks if b.NAME not in found]
    quick = [name for name, content in found.items() if content["quick"]]
    if whole and (missing or quick):
        raise PageError(
            f"{out} has no whole results of: {', '.join(missing + quick)}. Run python "
            "benchmarks/run.py there first, without --quick."
        )
    return found


def tables(benchmarks: Sequence[ModuleType], found: Mapping[str, dict[str, Any]]) -> str:
    """The machine and one table a benchmark, in their order."""
    parts = []
    for machine in _machines(found):
        names = [name for name, content in found.items() if content["machine"] == machine]
        rows = "\n".join(f"| {key} | {value} |" for key, value in machine.items())
        parts.append(f"### Machine\n\n{', '.join(names)}:\n\n| | |\n| --- | --- |\n{rows}\n")
    parts += [
        benchmark.table(found[benchmark.NAME]).markdown(found[benchmark.NAME])
        for benchmark in benchmarks
        if benchmark.NAME in found
    ]
    return "\n".join(parts)


def write_page(page: Path, content: str) -> None:
    """Put ``content`` between the page's markers."""
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise PageError(f"{page} has no place for the tables: {BEGIN} ... {END}.")
    page.write_text(f"{head}{BEGIN}\n\n{content}\n{END}{tail}", encoding="utf-8")


def _machines(found: Mapping[str, dict[str, Any]]) -> list[dict[str, str]]:
    machines: list[dict[str, str]] = []
    for content in found.values():
        if content["machine"] not in machines:
            machines.append(content["machine"])
    return machines
