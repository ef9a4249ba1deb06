"""What the study found, as one Markdown page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from light.size import LightSize
from light.table import read_found
from real.problem_files import BENCHMARK
from real.size import RealSize
from real.tandem_commands import JUNIOR

__all__ = ["write_summary"]

_BESIDE = """\
One seed a method with verl's trainer and `tandem eval`, and the light loop with the same pair,
sizes and rates: the same task by two programs, not the same random numbers, so that rows agree
within what one seed and the held-out problems leave open.
"""


def write_summary(
    out: Path, light: LightSize, budget: LightSize, real: RealSize, seconds: Mapping[str, float]
) -> Path:
    """Write ``study.md`` from what lies under ``out``; returns its path."""
    sections = [
        "# Many seeds, light",
        _within(out / "light" / "light.md"),
        "# With verl's trainer, and the light loop beside it",
        _BESIDE,
        _beside(out, budget, real),
        "# The real part's tables",
        (out / "real" / "tables" / "tables.md").read_text(encoding="utf-8"),
        "# Time",
        _times(seconds),
    ]
    path = out / "study.md"
    path.write_text("\n\n".join(section.strip() for section in sections) + "\n", encoding="utf-8")
    return path


def _within(page: Path) -> str:
    """A page of a folder below as a section: heads a level lower, pictures where they lie."""
    text = "\n" + page.read_text(encoding="utf-8")
    text = text.replace("\n## ", "\n### ").replace("\n# ", "\n## ")
    return text.replace("](figures/", f"]({page.parent.name}/figures/")


def _beside(out: Path, budget: LightSize, real: RealSize) -> str:
    measures = ("solo", "step", "step-bernoulli", "cross_entropy", "overlap", "kl")
    found = read_found(out / "light-at-real-budget", budget)
    lines = ["| | " + " | ".join(measures) + " |", "| --- |" + " ---: |" * len(measures)]
    for method in real.methods:
        row = found.row(real.exposure, method, "last")
        light = " | ".join(f"{row.mean(name):.3f}" for name in measures)
        theirs = _real(out / "real" / "results" / method.replace(" ", "-"))
        lines += [
            f"| {method}, verl | " + " | ".join(f"{theirs[name]:.3f}" for name in measures) + " |",
            f"| {method}, light | {light} |",
        ]
    return "\n".join(lines)


def _real(results: Path) -> dict[str, float]:
    """The measures of one senior, from the summaries of `tandem eval`."""

    def summary(*parts: str) -> dict[str, Any]:
        text = results.joinpath(*parts, "summary.json").read_text(encoding="utf-8")
        return dict(json.loads(text))

    def passed(*parts: str) -> float:
        rows = summary(*parts)["benchmarks"][BENCHMARK]
        return sum(row["correct"] / row["samples"] for row in rows) / len(rows)

    read = summary("legibility", JUNIOR)["benchmarks"][BENCHMARK]
    return {
        "solo": passed("solo"),
        "step": passed("handoff", "step", JUNIOR),
        "step-bernoulli": passed("handoff", "step-bernoulli", JUNIOR),
        "cross_entropy": sum(row["cross_entropy"] for row in read) / len(read),
        "overlap": sum(row["overlap"] for row in read) / len(read),
        "kl": float(summary("drift", JUNIOR)["metrics"]["kl"]),
    }


def _times(seconds: Mapping[str, float]) -> str:
    rows = [f"| {name} | {taken / 60:.1f} |" for name, taken in seconds.items()]
    total = f"| all | {sum(seconds.values()) / 60:.1f} |"
    return "\n".join(["| Stage | Minutes |", "| --- | ---: |", *rows, total])
