"""The study's page: rows, claims and curves, as Markdown and a figure."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from light.judging import Judged, judge_all, power_lines
from light.size import METHODS, TRL, LightSize
from light.table import CHOICES, MEASURES, START, Choice, Found, Row, read_found

_PANELS = ("solo", "step", "cross_entropy", "kl")


def write_page(out: Path, size: LightSize) -> Path:
    """Write ``study.md`` and its figure from the notes of all trainings; returns its path."""
    found = read_found(out, size)
    figure = _draw_curves(found, out / "curves.svg").relative_to(out)
    sections = ["# Before it was run", "", *power_lines(size), "", f"![Curves]({figure})", ""]
    for choice, said in CHOICES.items():
        sections += [f"# At {said}", "", *_table(_rows(found, choice)), ""]
        sections += [*_claims(judge_all(found, choice)), ""]
    path = out / "study.md"
    path.write_text("\n".join(sections), encoding="utf-8")
    return path


def _rows(found: Found, choice: Choice) -> list[tuple[str, Row]]:
    """Named rows: of matched checkpoints, couples of each other method and TRL."""
    rows = [(START, found.row(START, "last"))]
    if choice != "matched":
        return rows + [(one.name, found.row(one.name, choice)) for one in METHODS]
    for other in METHODS:
        if other != TRL:
            ours, theirs = found.couple(TRL.name, other.name, choice)
            rows += [(f"{other.name}, as accurate as TRL", theirs)]
            rows += [(f"TRL, as accurate as {other.name}", ours)]
    return rows


def _table(rows: list[tuple[str, Row]]) -> list[str]:
    return [
        f"| | {' | '.join(MEASURES.values())} |",
        "| --- |" + " ---: |" * len(MEASURES),
        *(f"| {name} | {' | '.join(_cell(row, one) for one in MEASURES)} |" for name, row in rows),
        "",
        "Mean ± standard error over taught models.",
    ]


def _cell(row: Row, measure: str) -> str:
    if measure == "step_number":
        return f"{row.mean(measure):.0f}"
    return f"{row.mean(measure):.3f} ± {row.error(measure):.3f}"


def _claims(judged: list[Judged]) -> list[str]:
    return [
        "| Claim | of | against | the paper | here | p | verdict |",
        "| --- | --- | --- | --- | ---: | ---: | --- |",
        *(
            f"| {one.claim.text} | {one.method} | {one.against} | {one.claim.paper} | "
            f"{one.mean:+.4f} ± {one.error:.4f} | {_probability(one.p)} | {one.verdict} |"
            for one in judged
        ),
    ]


def _probability(p: float) -> str:
    return "–" if math.isnan(p) else f"{p:.2g}"


def _draw_curves(found: Found, path: Path) -> Path:
    """Means by step, with standard errors over taught models; returns the figure's path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(_PANELS), figsize=(4 * len(_PANELS), 3.2))
    for axis, measure in zip(axes, _PANELS, strict=True):
        for method in METHODS:
            curves = [found.curve(one) for one in found.curves if one.method == method]
            values = np.array([[point[measure] for point in curve] for curve in curves])
            steps = [point["step_number"] for point in curves[0]]
            axis.plot(steps, values.mean(axis=0), label=method.name)
        axis.set_title(MEASURES[measure])
        axis.set_xlabel("step")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path
