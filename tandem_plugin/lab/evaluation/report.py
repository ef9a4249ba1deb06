"""The figures of a folder of results, and the tables of ``tandem compare``, on one page."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tandem_plugin._version import __version__
from tandem_plugin.files import check_page, write_file
from tandem_plugin.lab.evaluation.comparison import (
    BySenior,
    Comparison,
    Groups,
    compare,
    ordered_seniors,
    read_seniors,
    runs_by_label,
)
from tandem_plugin.lab.evaluation.measures import Over, measured, measures, shown_measures
from tandem_plugin.lab.evaluation.rendering import PaperTable, escaped, html_page, markdown
from tandem_plugin.lab.evaluation.results import Summary, check_comparable
from tandem_plugin.lab.evaluation.tables import paper_tables
from tandem_plugin.lab.evaluation.training_curves import TrainingCurve, read_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Runs: TypeAlias = Mapping[str, Mapping[str, Summary]]
"""Runs by label, then by senior."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999999")
"""Okabe and Ito's colours, distinguishable with colour vision deficiency."""

_MARKS = "os^Dv*PX"
"""The first is of runs without a unit."""

_Panel: TypeAlias = Callable[[Any], None]
"""Draws on Matplotlib's axes."""

_Entry: TypeAlias = tuple[str, str, str]
"""Of a legend: name, colour, and mark; no mark for a line."""


def build_report(
    results: Sequence[Path],
    out: Path,
    k: int | None,
    pools: Groups,
    over: Over,
    units: Groups,
    trainings: Mapping[str, Path] = MappingProxyType({}),
) -> dict[str, Any]:
    """Write ``index.html`` and ``figures/*.png`` under ``out``; returns what ``--json`` prints.

    results: one folder, whose seniors are ordered as by :func:`ordered_seniors`, or several in the
    order of tables and legends: the first that drifted is the baseline of recovery, the last is
    tested against the others. k, pools, over, units: as of :func:`paper_tables` and
    :func:`compare`; figures show every run by itself, with the colour of its pool and the mark of
    its unit. trainings: folders of rollouts by name, for a figure of their own. Raises
    :class:`EvaluationError` for results that cannot be compared, or where there are none, and as
    :func:`read_training`.
    """
    page = out / "index.html"
    check_page(page)
    by_senior = read_seniors(results)
    if len(results) == 1:
        by_senior = {name: by_senior[name] for name in ordered_seniors(by_senior)}
    runs = runs_by_label(by_senior)
    for same in runs.values():
        check_comparable(list(same.values()))
    drawn = looks(list(by_senior), pools, units)
    figures = (
        _curves_figure(runs, drawn),
        _senior_figure(runs, drawn, k, over),
        _drift_figure(runs, drawn),
        _training_figure({name: read_training(folder) for name, folder in trainings.items()}),
    )
    pictures = [figure for figure in figures if figure is not None]
    comparison = _comparison(by_senior, pools, over, units)
    notes = ["There are results of only one senior: tables compare two or more."]
    tables: list[PaperTable] = []
    if comparison is not None:
        tables, notes = paper_tables(comparison, k), list(comparison.notes)
    kinds = [("Seeds of", pools), ("Unit", units)]
    groups = [
        f"{kind} {group}: {', '.join(all_)}." for kind, g in kinds for group, all_ in g.items()
    ]
    write_file(page, _page([*groups, *notes], pictures, tables).encode("utf-8", "replace"))
    for picture in pictures:
        write_file(out / "figures" / f"{picture.name}.png", picture.wide)
    names = [picture.name for picture in pictures]
    return {"page": str(page), "figures": names, "tables": len(tables), "notes": notes}


def _comparison(by_senior: BySenior, pools: Groups, over: Over, units: Groups) -> Comparison | None:
    """The comparison of pooled seniors and those with the most runs; None for a single one."""
    pooled = {name for members in pools.values() for name in members}
    most = max(len(runs) for runs in by_senior.values())
    widest = {name: runs for name, runs in by_senior.items() if len(runs) == most or name in pooled}
    chosen = widest if len(widest) > 1 else by_senior
    if len(chosen) < 2:
        return None
    return compare(chosen, pools=pools, over=over, units=units)


def _page(notes: Sequence[str], pictures: Sequence[Picture], tables: Sequence[PaperTable]) -> str:
    """One HTML file without scripts.

    Its Content Security Policy allows only its own style and pictures.
    """
    style = files("tandem_plugin.lab.evaluation").joinpath("report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    title = "Tandem evaluation"
    head = "\n".join([f"# {title}", *(f"- {escaped(note)}" for note in notes)])
    foot = f"Made by tandem-plugin {escaped(__version__)}."
    body = [html_page(head), *map(_figure, pictures)]
    body.append(html_page("\n".join([*map(markdown, tables), foot])))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "</body>\n</html>\n"
    )


def _figure(picture: Picture) -> str:
    """Its texts have nothing of the results but settings' numbers."""
    wide, narrow = (base64.b64encode(png).decode() for png in (picture.wide, picture.narrow))
    return (
        f"<figure><h3>{picture.title}</h3><picture>"
        f'<source media="(max-width: 60rem)" srcset="data:image/png;base64,{narrow}">'
        f'<img alt="{picture.title}" src="data:image/png;base64,{wide}"></picture>'
        f"<figcaption>{picture.caption}</figcaption></figure>"
    )


# Figures.


class Look(NamedTuple):
    """How a run is drawn: its colour and mark, and the method and unit they stand for."""

    method: str
    colour: str
    unit: str
    marker: str


class Picture(NamedTuple):
    """A figure of the page."""

    name: str
    """The name of its file."""
    title: str
    caption: str
    wide: bytes
    narrow: bytes
    """The same panels below each other, for a phone."""


def looks(names: Sequence[str], pools: Groups, units: Groups) -> dict[str, Look]:
    """A color per pool and a mark per unit, always the same for the same names."""
    method_of, unit_of = (
        {member: group for group, members in groups.items() for member in members}
        for groups in (pools, units)
    )
    methods = sorted({method_of.get(name, name) for name in names})
    marked = ["", *units]
    look_of = {}
    for name in names:
        method, unit = method_of.get(name, name), unit_of.get(name, "")
        colour = _COLOURS[methods.index(method) % len(_COLOURS)]
        look_of[name] = Look(method, colour, unit, _MARKS[marked.index(unit) % len(_MARKS)])
    return look_of


def _senior_figure(
    runs: _Runs, drawn: Mapping[str, Look], k: int | None, over: Over
) -> Picture | None:
    """Macro averages of every senior alone, in teams and read by juniors; None without any.

    k: of pass@k; None means 8, or the largest available. Source: sections 4.2, 4.3 and 4.5.
    """
    panels: list[_Panel] = []
    shown: dict[str, Look] = {}
    for label, by_senior in runs.items():
        first = next(iter(by_senior.values()))
        if not measures(first):
            continue
        numbers = {senior: measured(run, over=over) for senior, run in by_senior.items()}
        for measure in shown_measures(first, k):
            points = {
                senior: (
                    measure.scale * values[measure].macro,
                    measure.scale * values[measure].macro_error,
                )
                for senior, values in numbers.items()
            }
            panels.append(partial(_draw_points, points, drawn, f"{label}\n{measure.heading}"))
        shown |= {name: drawn[name] for name in by_senior}
    if not panels:
        return None
    caption = (
        f"One point per senior. Averages over benchmarks; legibility is the mean over {over}. Bars "
        "are one bootstrap standard error over problems."
    )
    legend = [(look.method, look.colour, "o") for look in shown.values()]
    legend += [(look.unit, "#555555", look.marker) for look in shown.values() if look.unit]
    return _picture("seniors", "Handoff and legibility by senior", caption, panels, legend)


def _curves_figure(runs: _Runs, drawn: Mapping[str, Look]) -> Picture | None:
    """pass@k of every senior over k, by benchmark; None without any.

    Source: figures 2 and 3 of the paper, whose k end at 32 alone and at 8 as a team.
    """
    panels: list[_Panel] = []
    shown: dict[str, Look] = {}
    for label, by_senior in runs.items():
        first = next(iter(by_senior.values()))
        ks = [measure for measure in measures(first) if measure.k and not measure.grader]
        if len(ks) < 2:
            continue
        numbers = {senior: measured(run) for senior, run in by_senior.items()}
        for name in (*first.problems, ""):
            curves = {}
            for senior, values in numbers.items():
                points = [values[measure] for measure in ks if measure in values]
                means = [point.means[name] if name else point.macro for point in points]
                errors = [point.errors[name] if name else point.macro_error for point in points]
                curves[senior] = [measure.k or 0 for measure in ks], means, errors
            panels.append(partial(_draw_curves, curves, drawn, f"{label}\n{name or 'average'}"))
        shown |= {name: drawn[name] for name in by_senior}
    if not panels:
        return None
    caption = (
        "Share of problems solved by one of k responses. Bands are one bootstrap standard error."
    )
    legend = [(look.method, look.colour, "") for look in shown.values()]
    return _picture("curves", "pass@k", caption, panels, legend)


def _draw_curves(
    curves: Mapping[str, tuple[list[int], list[float], list[float]]],
    drawn: Mapping[str, Look],
    title: str,
    axes: Any,
) -> None:
    """In percent, with the k of powers of two evenly spaced."""
    for senior, (ks, means, errors) in curves.items():
        middle = [100 * mean for mean in means]
        lower = [100 * (mean - error) for mean, error in zip(means, errors, strict=True)]
        upper = [100 * (mean + error) for mean, error in zip(means, errors, strict=True)]
        colour = drawn[senior].colour
        axes.plot(ks[: len(middle)], middle, color=colour, marker=".")
        axes.fill_between(ks[: len(middle)], lower, upper, color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set_title(title, fontsize="medium")
    axes.set(xlabel="k", ylabel="pass@k, %")


def _draw_points(
    points: Mapping[str, tuple[float, float]], drawn: Mapping[str, Look], title: str, axes: Any
) -> None:
    for i, (senior, (value, error)) in enumerate(points.items()):
        look = drawn[senior]
        axes.errorbar(i, value, yerr=error, color=look.colour, fmt=look.marker, capsize=3)
    axes.set_title(title, fontsize="medium")
    axes.set_xticks([])
    axes.set_xlim(-0.6, len(points) - 0.4)


def _drift_figure(runs: _Runs, drawn: Mapping[str, Look]) -> Picture | None:
    """Survival curves of drift from each junior; None without a drift run.

    Source: section 4.4, left panel of its figure.
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
    shown = {drawn[senior] for by_senior in drifts.values() for senior in by_senior}
    legend = [(look.method, look.colour, "") for look in sorted(shown)]
    return _picture("drift", "Drift from the junior", caption, panels, legend)


def _training_figure(curves: Mapping[str, TrainingCurve]) -> Picture | None:
    """Reward, length and wall clock of trainings by step; None without any.

    Source: figure 6 of the paper.
    """
    colours = dict(zip(curves, cycle(_COLOURS)))
    panels: list[_Panel] = []
    for title, values in (
        ("reward, mean of a step", {name: curve.rewards for name, curve in curves.items()}),
        ("tokens per response", {name: curve.lengths for name, curve in curves.items()}),
        ("hours since the first step", {name: curve.hours for name, curve in curves.items()}),
    ):
        lines = {
            name: (curves[name].steps, of_training)
            for name, of_training in values.items()
            if not all(map(math.isnan, of_training))
        }
        if lines:
            panels.append(partial(_draw_steps, lines, colours, title))
    if not panels:
        return None
    caption = "By training step, from the responses that the trainer wrote."
    return _picture("training", "Training", caption, panels, [(n, colours[n], "") for n in curves])


def _draw_steps(
    lines: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    colours: Mapping[str, str],
    title: str,
    axes: Any,
) -> None:
    for name, (steps, values) in lines.items():
        axes.plot(steps, values, color=colours[name])
    axes.set(xlabel="step", title=title)


def _draw_survival(
    label: str, by_senior: Mapping[str, Summary], drawn: Mapping[str, Look], axes: Any
) -> None:
    for senior, run in by_senior.items():
        curve = run.content["metrics"]["survival"]
        points = list(zip(curve["thresholds"], curve["shares"], strict=False))
        x, y = [value for value, _ in points], [value for _, value in points]
        axes.plot(x, y, color=drawn[senior].colour)
    axes.set(xlabel="|log(p_sen / p_jun)|, nats", title=label, ylim=(0, 1.02))


def _picture(
    name: str, title: str, caption: str, panels: Sequence[_Panel], legend: Sequence[_Entry]
) -> Picture:
    entries = list(dict.fromkeys(legend))
    return Picture(name, title, caption, *(_draw(panels, entries, across) for across in (3, 1)))


def _draw(panels: Sequence[_Panel], legend: Sequence[_Entry], across: int) -> bytes:
    """A picture of panels, so many in a line, each drawn by its function, above a legend.

    Text is never parsed as mathematics. The same numbers give the same bytes.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plain: Any = {"text.parse_math": False, "text.usetex": False}
    columns, lines = min(across, len(panels)), -(-len(panels) // across)
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
        _draw_legend(figure, legend)
        figure.savefig(png, format="png", dpi=120, metadata={"Software": None})
    return png.getvalue()


def _draw_legend(figure: Figure, legend: Sequence[_Entry]) -> None:
    """A legend below all panels, in as many columns as fit."""
    from matplotlib.lines import Line2D

    points = 8.0
    # A line, its gaps, and letters nearly as wide as high.
    widest = (7 + 0.8 * max(len(name) for name, *_ in legend)) * points
    columns = max(1, int(72 * figure.get_figwidth() // widest))
    lines = [
        Line2D([], [], color=colour, marker=marker, linestyle="none" if marker else "-")
        for _, colour, marker in legend
    ]
    figure.legend(
        lines,
        [name for name, *_ in legend],
        loc="outside lower center",
        ncols=min(len(legend), columns),
        frameon=False,
        fontsize=points,
        handlelength=3,
    )
