"""The figures of drift: survival, recovery, and the tokens that seniors over-emit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation import drift
from tandem_plugin.lab.evaluation.drift_run import read_counts
from tandem_plugin.lab.evaluation.measures import mean_metric
from tandem_plugin.lab.evaluation.report.figure import (
    COLOURS,
    ReportFigure,
    Style,
    file_name,
    legend,
    shown_token,
)
from tandem_plugin.lab.evaluation.results import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["recovery_figures", "survival_figure", "token_clouds"]


Runs = Mapping[str, Summary]


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
    label: str, runs: Runs, pieces: Sequence[bytes] | None, top: int
) -> Iterator[ReportFigure]:
    """What each other senior does to the tokens that the baseline displaced most.

    The baseline is the first senior that has drifted. pieces: the text of every token, where the
    tokenizer is at hand. Source: section 4.4, right panel.
    """
    baseline = next((s for s, run in runs.items() if mean_metric(run, "kl") > 0), None)
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


def _text(pieces: Sequence[bytes], token: int) -> str:
    known = pieces[token] if token < len(pieces) else f"<{token}>".encode()
    return known.decode("utf-8", "backslashreplace")
