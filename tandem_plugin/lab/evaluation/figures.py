"""The figures of a report: every senior's measures, and drift."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.measures import Over, measured, shown_measures
from tandem_plugin.lab.evaluation.results import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "Runs", "Style", "drift_figure", "senior_figure", "styles"]

Runs: TypeAlias = Mapping[str, Mapping[str, Summary]]
"""Runs by label, then by senior."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999999")
"""Okabe and Ito's, which people who see colours otherwise can tell apart."""

_LINES, _MARKERS = ("-", "--", ":", "-."), ("o", "s", "^", "D")
_ACROSS = 3
"""Panels in a line."""


class Picture(NamedTuple):
    """A figure as the page shows it."""

    name: str
    """Of its file."""
    title: str
    caption: str
    png: bytes


class Style(NamedTuple):
    """How one senior is drawn in every figure."""

    colour: str
    line: str
    marker: str


def styles(names: Sequence[str], pools: Mapping[str, Sequence[str]]) -> dict[str, Style]:
    """A style for each name: one colour per pool, another line and marker for each member.

    A name or pool has the same colour whenever the same names are given.
    """
    method_of = {member: method for method, members in pools.items() for member in members}
    methods = sorted({method_of.get(name, name) for name in names})
    by_name = {}
    for name in names:
        method = method_of.get(name, name)
        i = list(pools[method]).index(name) if name in method_of else 0
        colour = _COLOURS[methods.index(method) % len(_COLOURS)]
        by_name[name] = Style(colour, _LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)])
    return by_name


def senior_figure(
    runs: Runs, drawn: Mapping[str, Style], k: int | None, over: Over
) -> Picture | None:
    """Macro averages of every senior alone, as a team and read by juniors; None without any.

    k: of pass@k; None takes 8, or the largest there is. Source: sections 4.2, 4.3 and 4.5.
    """
    panels: list[Callable[[Any], None]] = []
    names: dict[str, Style] = {}
    for label, by_senior in runs.items():
        first = next(iter(by_senior.values()))
        if first.kind == "drift":
            continue
        each = {senior: measured(run, over=over) for senior, run in by_senior.items()}
        for one in shown_measures(first, k):
            points = {
                senior: (one.scale * values[one].macro, one.scale * values[one].macro_error)
                for senior, values in each.items()
            }
            panels.append(partial(_draw_points, points, drawn, f"{label}\n{one.heading}"))
        names |= {name: drawn[name]._replace(line="none") for name in by_senior}
    if not panels:
        return None
    caption = (
        f"Averages over benchmarks; legibility is the mean over {over}. Bars are one bootstrap "
        "standard error over problems."
    )
    return Picture("seniors", "Handoff and legibility by senior", caption, _draw(panels, names))


def _draw_points(
    points: Mapping[str, tuple[float, float]], drawn: Mapping[str, Style], title: str, axes: Any
) -> None:
    for i, (senior, (value, error)) in enumerate(points.items()):
        style = drawn[senior]
        axes.errorbar(i, value, yerr=error, color=style.colour, fmt=style.marker, capsize=3)
    axes.set_title(title, fontsize="medium")
    axes.set_xticks([])
    axes.set_xlim(-0.6, len(points) - 0.4)


def drift_figure(runs: Runs, drawn: Mapping[str, Style]) -> Picture | None:
    """How many tokens drifted how far, from each junior; None without a run of drift.

    Raises :class:`EvaluationError` for a run without a survival curve. Source: section 4.4, left
    panel of its figure.
    """
    drifts = {label: by for label, by in runs.items() if next(iter(by.values())).kind == "drift"}
    if not drifts:
        return None
    panels = [partial(_draw_survival, label, by, drawn) for label, by in drifts.items()]
    settings = next(iter(next(iter(drifts.values())).values())).settings
    caption = (
        "Share of tokens whose log-ratio is above, of those that the junior wrote at least "
        f"{settings['frequent']} times; counts are smoothed by {settings['smoothing']:g}."
    )
    names = dict.fromkeys(senior for by_senior in drifts.values() for senior in by_senior)
    lines = {name: drawn[name]._replace(marker="none") for name in names}
    return Picture("drift", "Drift from the junior", caption, _draw(panels, lines))


def _draw_survival(
    label: str, by_senior: Mapping[str, Summary], drawn: Mapping[str, Style], axes: Any
) -> None:
    for senior, run in by_senior.items():
        curve = run.content["metrics"].get("survival")
        if curve is None:
            raise EvaluationError("TP883", senior=run.senior, folder=run.folder)
        style = drawn[senior]
        points = list(zip(curve["thresholds"], curve["shares"], strict=False))
        x, y = [one for one, _ in points], [one for _, one in points]
        axes.plot(x, y, color=style.colour, linestyle=style.line)
    axes.set(xlabel="|log(p_sen / p_jun)|, nats", title=label, ylim=(0, 1.02))


def _draw(panels: Sequence[Callable[[Any], None]], names: Mapping[str, Style]) -> bytes:
    """A picture of panels, each drawn by its function, above a legend of names.

    Text is never taken for mathematics. The same numbers give the same bytes.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plain: Any = {"text.parse_math": False, "text.usetex": False}
    columns, lines = min(_ACROSS, len(panels)), -(-len(panels) // _ACROSS)
    png = io.BytesIO()
    with matplotlib.rc_context(plain), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(3.4 * columns + 0.6, 3.0 * lines + 0.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
        for unused in axes[len(panels) :]:
            unused.set_axis_off()
        for draw, used in zip(panels, axes, strict=False):
            used.grid(alpha=0.25)
            draw(used)
        _legend(figure, names)
        figure.savefig(png, format="png", dpi=120, metadata={"Software": None})
    return png.getvalue()


def _legend(figure: Figure, names: Mapping[str, Style]) -> None:
    """A legend below all panels, where it hides nothing, in as many columns as fit."""
    from matplotlib.lines import Line2D

    points = 8.0
    # A line, the gaps beside it, and letters that are nearly as wide as they are high.
    widest = (7 + 0.8 * max(map(len, names))) * points
    columns = max(1, int(72 * figure.get_figwidth() // widest))
    lines = [
        Line2D([], [], color=one.colour, linestyle=one.line, marker=one.marker)
        for one in names.values()
    ]
    figure.legend(
        lines,
        list(names),
        loc="outside lower center",
        ncols=min(len(names), columns),
        frameon=False,
        fontsize=points,
        handlelength=3,
    )
