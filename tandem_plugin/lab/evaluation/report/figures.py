"""The figures of a report, made from the results of several seniors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from tandem_plugin.lab.evaluation.measures import Measured, Over, measured, measures
from tandem_plugin.lab.evaluation.report.figure import (
    ReportFigure,
    Style,
    file_name,
    legend,
    panels,
)
from tandem_plugin.lab.evaluation.report.training_log import TrainingLog
from tandem_plugin.lab.evaluation.results import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "legibility_figure",
    "pass_at_k_figure",
    "training_figure",
]

Runs = Mapping[str, Summary]
_MACRO = "macro average"
_DYNAMICS = {
    "reward": ("reward", "mean reward of a response"),
    "length": ("length", "tokens a response"),
    "seconds": ("time of a step", "seconds"),
    "accumulated_hours": ("time so far", "hours"),
    "accuracy": ("validation", "accuracy, from 0 to 1"),
    "team_accuracy": ("validation of the team", "accuracy, from 0 to 1"),
}
"""Title and unit of each panel of training dynamics."""


def pass_at_k_figure(label: str, runs: Runs, drawn: Mapping[str, Style]) -> ReportFigure:
    """pass@k curves by benchmark, with bands of one standard error. Source: sections 4.2, 4.3."""
    first = next(iter(runs.values()))
    benchmarks = [*first.problems, *([_MACRO] if len(first.problems) > 1 else [])]
    found = {s: [(m.k or 0, one) for m, one in measured(run).items()] for s, run in runs.items()}
    rows = [
        (benchmark, senior, k, *_value(one, benchmark))
        for benchmark in benchmarks
        for senior, curve in found.items()
        for k, one in curve
    ]

    def draw(figure: Figure) -> None:
        for i, (axes, benchmark) in enumerate(
            zip(panels(figure, len(benchmarks), 4), benchmarks, strict=True)
        ):
            for senior in found:
                points = np.array([r[2:] for r in rows if r[:2] == (benchmark, senior)])
                k, value, error = points.T
                style = drawn[senior]
                axes.plot(
                    k, 100 * value, color=style.colour, linestyle=style.line, marker=style.marker,
                    markersize=3,
                )  # fmt: skip
                axes.fill_between(
                    k, 100 * (value - error), 100 * (value + error), color=style.colour,
                    alpha=0.12, linewidth=0,
                )  # fmt: skip
            axes.set_xscale("log", base=2)
            ks = sorted({r[2] for r in rows})
            axes.set_xticks(ks, [str(k) for k in ks])
            low, high = axes.get_ylim()
            axes.set_ylim(max(0.0, low), min(101.0, high))
            axes.set(xlabel="k (responses)", title=_counted(first, benchmark))
            axes.grid(alpha=0.25)
            if i % 4 == 0:
                axes.set_ylabel("pass@k (%)")
        legend(figure, {senior: drawn[senior] for senior in found})

    kind = "alone" if first.kind == "solo" else "as a team"
    return ReportFigure(
        file_name("pass-at-k", label),
        f"pass@k: {label}",
        f"Seniors {kind}; bands are one bootstrap standard error over problems.",
        ("benchmark", "senior", "k", "pass_at_k", "standard_error"),
        tuple(rows),
        draw,
        (3.2 * min(4, len(benchmarks)) + 0.8, 3.4 * -(-len(benchmarks) // 4) + 0.4),
    )


def legibility_figure(
    label: str, runs: Runs, drawn: Mapping[str, Style], over: Over = "problems"
) -> ReportFigure:
    """Cross-entropy and overlap by benchmark, with standard errors. Source: section 4.5.

    over: as of :func:`measured`.
    """
    first = next(iter(runs.values()))
    benchmarks = [*first.problems, *([_MACRO] if len(first.problems) > 1 else [])]
    chosen = measures(first)
    each = {senior: measured(run, over=over) for senior, run in runs.items()}
    found = {m.name: {senior: each[senior][m] for senior in runs} for m in chosen}
    rows = [
        (name, benchmark, senior, *_value(one, benchmark))
        for name, by_senior in found.items()
        for benchmark in benchmarks
        for senior, one in by_senior.items()
    ]

    def draw(figure: Figure) -> None:
        width = 0.8 / len(runs)
        for axes, one in zip(panels(figure, len(chosen), 2), chosen, strict=True):
            for i, senior in enumerate(runs):
                points = np.array([r[3:] for r in rows if (r[0], r[2]) == (one.name, senior)])
                places = np.arange(len(benchmarks)) + (i - (len(runs) - 1) / 2) * width
                axes.errorbar(
                    places, points[:, 0], yerr=points[:, 1], color=drawn[senior].colour,
                    fmt=drawn[senior].marker, capsize=2, markersize=4,
                )  # fmt: skip
            names = [_counted(first, name).replace(" ", "\n", 1) for name in benchmarks]
            axes.set_xticks(range(len(benchmarks)), names)
            axes.set_title(one.heading)
            axes.grid(alpha=0.25, axis="y")
        legend(figure, {senior: drawn[senior] for senior in runs})

    return ReportFigure(
        file_name(label),
        f"Legibility to {first.junior}",
        "The junior's mean cross-entropy on the seniors' own responses, and the overlap of both "
        f"models' distributions, means over {over}; bars are one bootstrap standard error over "
        "problems.",
        ("measure", "benchmark", "senior", "value", "standard_error"),
        tuple(rows),
        draw,
        (max(8.0, 0.35 * len(runs) * len(benchmarks) + 2), 4.4),
    )


def training_figure(logs: Sequence[TrainingLog], drawn: Mapping[str, Style]) -> ReportFigure:
    """Reward, length, time and accuracy over training steps. Source: section 5.1."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {name: {} for name in _DYNAMICS}
    for log in logs:
        for quantity, points in log.curves.items():
            curves[quantity][log.name] = list(points)
        seconds = log.curves.get("seconds", ())
        if seconds:
            hours = accumulate(value / 3600 for _, value in seconds)
            curves["accumulated_hours"][log.name] = list(
                zip((step for step, _ in seconds), hours, strict=True)
            )
    shown = {name: by_log for name, by_log in curves.items() if by_log}
    rows = tuple(
        (quantity, name, step, value)
        for quantity, by_log in shown.items()
        for name, points in by_log.items()
        for step, value in points
    )

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        for axes, (quantity, by_log) in zip(panels(figure, len(shown), 3), shown.items(),
                                            strict=True):  # fmt: skip
            title, unit = _DYNAMICS[quantity]
            for name, points in by_log.items():
                style = drawn[name]
                axes.plot(
                    *zip(*points, strict=True), color=style.colour, linestyle=style.line,
                    marker=style.marker, markersize=3,
                )  # fmt: skip
            axes.set(xlabel="step", ylabel=unit, title=title)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            axes.grid(alpha=0.25)
        legend(figure, {log.name: drawn[log.name] for log in logs})

    return ReportFigure(
        "training-dynamics",
        "Training dynamics",
        "From the trainers' logs. Validation is each run's own, which may differ in who answers.",
        ("quantity", "run", "step", "value"),
        rows,
        draw,
        (3.4 * min(3, len(shown)) + 0.6, 3.0 * -(-len(shown) // 3) + 0.4),
    )


def _counted(run: Summary, benchmark: str) -> str:
    """A benchmark with its number of problems."""
    rows = run.problems.get(benchmark)
    return benchmark if rows is None else f"{benchmark} ({len(rows):,} problems)"


def _value(found: Measured, benchmark: str) -> tuple[float, float]:
    if benchmark == _MACRO and benchmark not in found.means:
        return found.macro, found.macro_error
    return found.means[benchmark], found.errors[benchmark]
