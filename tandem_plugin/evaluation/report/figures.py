"""The figures of a report, made from the results of several seniors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem_plugin.errors import EvaluationError
from tandem_plugin.evaluation import drift
from tandem_plugin.evaluation.comparison import Measured, measured, measures
from tandem_plugin.evaluation.drift_tables import drift_baseline
from tandem_plugin.evaluation.read_runs import read_counts
from tandem_plugin.evaluation.report.figure import (
    COLOURS,
    ReportFigure,
    Style,
    file_name,
    legend,
    panels,
    shown_token,
)
from tandem_plugin.evaluation.report.training_log import TrainingLog
from tandem_plugin.evaluation.results import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "legibility_figure",
    "pass_at_k_figure",
    "recovery_figures",
    "survival_figure",
    "token_clouds",
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
            axes.set(xlabel="k (responses)", title=benchmark)
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


def legibility_figure(label: str, runs: Runs, drawn: Mapping[str, Style]) -> ReportFigure:
    """Cross-entropy and overlap by benchmark, with standard errors. Source: section 4.5."""
    first = next(iter(runs.values()))
    benchmarks = [*first.problems, *([_MACRO] if len(first.problems) > 1 else [])]
    chosen = measures(first)
    each = {senior: measured(run) for senior, run in runs.items()}
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
            names = [name.replace(" ", "\n") for name in benchmarks]
            axes.set_xticks(range(len(benchmarks)), names)
            axes.set_title(one.heading)
            axes.grid(alpha=0.25, axis="y")
        legend(figure, {senior: drawn[senior] for senior in runs})

    return ReportFigure(
        file_name(label),
        f"Legibility to {first.junior}",
        "The junior's mean cross-entropy on the seniors' own responses, and the overlap of both "
        "models' distributions; bars are one bootstrap standard error over problems.",
        ("measure", "benchmark", "senior", "value", "standard_error"),
        tuple(rows),
        draw,
        (max(8.0, 0.35 * len(runs) * len(benchmarks) + 2), 4.4),
    )


def survival_figure(label: str, runs: Runs, drawn: Mapping[str, Style]) -> ReportFigure:
    """Survival curves of the absolute log-ratio. Source: section 4.4, left panel."""
    curves = {s: run.content["metrics"].get("survival") for s, run in runs.items()}
    for senior, curve in curves.items():
        if curve is None:
            raise EvaluationError(
                f"The drift of {senior!r} in {str(runs[senior].folder)!r} has no survival curve: "
                "run `tandem eval drift` again."
            )
    rows = [
        (senior, threshold, share)
        for senior, curve in curves.items()
        for threshold, share in zip(curve["thresholds"], curve["shares"], strict=True)
    ]
    first = next(iter(runs.values()))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for senior, curve in curves.items():
            style = drawn[senior]
            axes.plot(
                curve["thresholds"], curve["shares"], color=style.colour, linestyle=style.line
            )
        axes.set(
            xlabel="|log(p_sen / p_jun)|, nats", ylabel="share of tokens above", ylim=(0, 1.02)
        )
        axes.grid(alpha=0.25)
        kl = {senior: run.content["metrics"]["kl"] for senior, run in runs.items()}
        legend(
            figure,
            {f"{s} (KL {kl[s]:.4f} nats)": replace(drawn[s], marker="") for s in runs},
            across=3,
        )

    return ReportFigure(
        file_name("survival", label),
        f"Drift from {first.junior}",
        f"Tokens that {first.junior} wrote at least {first.settings['frequent']} times; counts are "
        f"smoothed by {first.settings['smoothing']:g}.",
        ("senior", "threshold", "share_above"),
        tuple(rows),
        draw,
        (7.2, 4.8),
    )


def recovery_figures(
    label: str, runs: Runs, pieces: Sequence[bytes] | None, top: int = drift.TOP
) -> Iterator[ReportFigure]:
    """What each other senior does to the tokens that the baseline displaced most.

    The baseline is the first senior that has drifted. pieces: the text of every token, where the
    tokenizer is at hand. Source: section 4.4, right panel.
    """
    baseline = drift_baseline(runs)
    if baseline is None:
        return
    base = runs[baseline]
    base_counts, junior_counts = read_counts(base)
    smoothing = base.settings["smoothing"]
    displacement = drift.log_ratio(base_counts, junior_counts, smoothing)
    most = drift.most_displaced(displacement, top)
    for senior, run in runs.items():
        if senior == baseline or run.content["metrics"]["kl"] == 0:
            continue
        shift = drift.log_ratio(read_counts(run)[0], base_counts, smoothing)
        found = drift.recovery(displacement[most], shift[most])
        texts = ["" if pieces is None else _text(pieces, int(token)) for token in most]
        rows = tuple(
            (int(token), text, float(x), float(y))
            for token, text, x, y in zip(most, texts, found.displacement, found.shift, strict=True)
        )
        yield ReportFigure(
            file_name("recovery", label, senior),
            f"Recovery: {senior} against {baseline}",
            f"The {len(most)} tokens that {baseline} displaced most from {run.junior}: "
            f"{100 * found.share_moved_back:.1f} % are moved back by {senior}; Spearman's ρ is "
            f"{found.spearman:.2f}.",
            ("token_id", "token", "log_ratio_baseline_junior", "log_ratio_senior_baseline"),
            rows,
            _scatter(found, baseline, senior, str(run.junior)),
            (6.0, 4.6),
        )


def _scatter(found: drift.Recovery, baseline: str, senior: str, junior: str) -> Any:
    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        back = found.displacement * found.shift < 0
        for chosen, colour in ((back, COLOURS[2]), (~back, COLOURS[1])):
            axes.scatter(
                found.displacement[chosen], found.shift[chosen], s=9, alpha=0.6, color=colour
            )
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.axvline(0, color="0.5", linewidth=0.8)
        axes.set(
            xlabel=f"drift of {baseline}: log(p / p of {junior}), nats",
            ylabel=f"shift of {senior}: log(p / p of {baseline}), nats",
        )
        axes.grid(alpha=0.25)
        names = {"moved back": COLOURS[2], "not moved back": COLOURS[1]}
        legend(figure, {name: Style(colour, "") for name, colour in names.items()})

    return draw


def token_clouds(label: str, runs: Runs, pieces: Sequence[bytes] | None) -> Iterator[ReportFigure]:
    """The tokens that each senior over-emits most, sized by log-ratio. Source: appendix B.1."""
    for senior, run in runs.items():
        listed = run.content["metrics"].get("over_emitted", [])[:40]
        if not listed:
            continue
        rows = tuple(
            (
                one["token"],
                str(one["piece"]) if pieces is None else _text(pieces, int(one["token"])),
                one["log_ratio"],
                one["senior"],
                one["junior"],
            )
            for one in listed
        )
        words = [(shown_token(str(row[1])) or "(empty)", float(row[2])) for row in rows]
        placed, height = _placed(words)
        yield ReportFigure(
            file_name("over-emitted", label, senior),
            f"Tokens that {senior} over-emits",
            f"Relative to {run.junior}, sized by log-ratio; ␣ is a space.",
            ("token_id", "token", "log_ratio", "count_senior", "count_junior"),
            rows,
            _cloud(placed, height),
            (8.2, height / 72 + 0.2),
        )


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a cloud, in points from the left and the top."""

    text: str
    left: float
    top: float
    size: float


_CLOUD_WIDTH = 8.0 * 72


def _placed(words: Sequence[tuple[str, float]]) -> tuple[list[_Word], float]:
    """Words in lines, each as wide as it is drawn, and the height that they take."""
    from matplotlib.textpath import TextPath

    largest = max(size for _, size in words)
    placed: list[_Word] = []
    left = top = line = 0.0
    for text, size in words:
        points = 9 + 21 * size / largest
        extent = TextPath((0, 0), text, size=points, usetex=False).get_extents()
        taken = max(float(extent.width), 0.4 * points) + 12
        if left + taken > _CLOUD_WIDTH and left:
            left, top, line = 0.0, top + line, 0.0
        placed.append(_Word(text, left, top, points))
        left, line = left + taken, max(line, 1.35 * points)
    return placed, top + line


def _cloud(placed: Sequence[_Word], height: float) -> Any:
    def draw(figure: Figure) -> None:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        axes.set_axis_off()
        for word in placed:
            axes.text(
                word.left / _CLOUD_WIDTH, 1 - word.top / height, word.text, fontsize=word.size,
                va="top", ha="left", color=COLOURS[int(word.size) % 4], transform=axes.transAxes,
            )  # fmt: skip

    return draw


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


def _value(found: Measured, benchmark: str) -> tuple[float, float]:
    if benchmark == _MACRO and benchmark not in found.means:
        return found.macro, found.macro_error
    return found.means[benchmark], found.errors[benchmark]


def _text(pieces: Sequence[bytes], token: int) -> str:
    known = pieces[token] if token < len(pieces) else f"<{token}>".encode()
    return known.decode("utf-8", "backslashreplace")
