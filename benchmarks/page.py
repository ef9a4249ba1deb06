"""Results as Markdown, and their place in docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["PageError", "markers", "read_results", "tables", "write_page"]


class PageError(RuntimeError):
    """Results that cannot be shown."""


def markers(place: str) -> tuple[str, str]:
    """What stands on a page before and behind the tables of one place."""
    return f"<!-- {place}: begin -->", f"<!-- {place}: end -->"


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
            f"{out} has no whole results of: {', '.join(missing + quick)}. Measure them there "
            "first, without --quick or --toy."
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


def write_page(page: Path, place: str, content: str) -> None:
    """Put ``content`` between the page's markers of one place."""
    first, last = markers(place)
    text = page.read_text(encoding="utf-8")
    head, begin, rest = text.partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise PageError(f"{page} has no place for the tables: {first} ... {last}.")
    page.write_text(f"{head}{first}\n\n{content}\n{last}{tail}", encoding="utf-8")


def _machines(found: Mapping[str, dict[str, Any]]) -> list[dict[str, str]]:
    machines: list[dict[str, str]] = []
    for content in found.values():
        if content["machine"] not in machines:
            machines.append(content["machine"])
    return machines
