"""The figures of a folder of results, and the tables of ``tandem compare``, on one page."""

from __future__ import annotations

import base64
import hashlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tandem_plugin._version import __version__
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import write_file
from tandem_plugin.lab.evaluation.comparison import (
    BySenior,
    Comparison,
    Groups,
    compare,
    ordered_seniors,
    read_seniors,
    runs_by_label,
)
from tandem_plugin.lab.evaluation.measures import Over, measured, shown_measures
from tandem_plugin.lab.evaluation.rendering import PaperTable, html_table, safe
from tandem_plugin.lab.evaluation.results import Summary, check_comparable
from tandem_plugin.lab.evaluation.tables import paper_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["build_report", "colours"]

_Runs: TypeAlias = Mapping[str, Mapping[str, Summary]]
"""Runs by label, then by senior."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999999")
"""Okabe and Ito's colours, distinguishable with colour vision deficiency."""

_ACROSS = 3
"""Panels per row."""


def build_report(
    results: Path,
    out: Path,
    title: str,
    order: Sequence[str],
    k: int | None,
    top: int,
    pools: Groups,
    over: Over,
    units: Groups,
) -> dict[str, Any]:
    """Write ``index.html`` and ``figures/*.png`` under ``out``; returns what ``--json`` prints.

    order: seniors in the order of tables and legends, see :func:`ordered_seniors`; the first that
    drifted is the baseline of recovery, the last is tested against the others. k, top, pools, over,
    units: see :func:`paper_tables` and :func:`compare`; figures show every run separately, pooled
    ones in one colour. Raises :class:`EvaluationError` for results that cannot be compared, or if
    there are none.
    """
    found = read_seniors([results])
    for name in order:
        if name not in found:
            raise EvaluationError("TP882", name=name, known=", ".join(sorted(found)))
    by_senior = {name: found[name] for name in ordered_seniors(found, order)}
    runs = runs_by_label(by_senior)
    for same in runs.values():
        check_comparable(list(same.values()))
    drawn = colours(list(by_senior), pools)
    figures = (_senior_figure(runs, drawn, k, over), _drift_figure(runs, drawn))
    pictures = [figure for figure in figures if figure is not None]
    comparison = _comparison(by_senior, pools, over, units)
    notes = ["There are results of only one senior: tables compare two or more."]
    tables: list[PaperTable] = []
    if comparison is not None:
        tables, notes = paper_tables(comparison, k, top), list(comparison.notes)
    page = out / "index.html"
    write_file(page, _page(title, notes, pictures, tables).encode("utf-8", "replace"))
    for one in pictures:
        write_file(out / "figures" / f"{one.name}.png", one.png)
    names = [one.name for one in pictures]
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


def _page(
    title: str, notes: Sequence[str], pictures: Sequence[Picture], tables: Sequence[PaperTable]
) -> str:
    """One HTML file without scripts.

    Its Content Security Policy allows only its own style and pictures.
    """
    style = files("tandem_plugin.lab.evaluation").joinpath("report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    body = [
        f"<h1>{safe(title)}</h1>",
        *(f"<p class=note>{safe(note)}</p>" for note in notes),
        *map(_figure, pictures),
        *map(html_table, tables),
        f"<footer>Made by tandem-plugin {safe(__version__)}.</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    title, caption = safe(picture.title), safe(picture.caption)
    return (
        f"<figure><h2>{title}</h2><div class=wide>"
        f'<img alt="{title}. {caption}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


# Figures.


class Picture(NamedTuple):
    """A figure of the page."""

    name: str
    """The name of its file."""
    title: str
    caption: str
    png: bytes


def colours(names: Sequence[str], pools: Groups) -> dict[str, str]:
    """A colour for each name: one per pool, always the same for the same names."""
    method_of = {member: method for method, members in pools.items() for member in members}
    methods = sorted({method_of.get(name, name) for name in names})
    places = {name: methods.index(method_of.get(name, name)) for name in names}
    return {name: _COLOURS[place % len(_COLOURS)] for name, place in places.items()}


def _senior_figure(
    runs: _Runs, drawn: Mapping[str, str], k: int | None, over: Over
) -> Picture | None:
    """Macro averages of every senior alone, in teams and read by juniors; None without any.

    k: of pass@k; None means 8, or the largest available. Source: sections 4.2, 4.3 and 4.5.
    """
    panels: list[Callable[[Any], None]] = []
    names: dict[str, str] = {}
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
        names |= {name: drawn[name] for name in by_senior}
    if not panels:
        return None
    caption = (
        f"Averages over benchmarks; legibility is the mean over {over}. Bars are one bootstrap "
        "standard error over problems."
    )
    return Picture(
        "seniors", "Handoff and legibility by senior", caption, _draw(panels, names, "o")
    )


def _draw_points(
    points: Mapping[str, tuple[float, float]], drawn: Mapping[str, str], title: str, axes: Any
) -> None:
    for i, (senior, (value, error)) in enumerate(points.items()):
        axes.errorbar(i, value, yerr=error, color=drawn[senior], fmt="o", capsize=3)
    axes.set_title(title, fontsize="medium")
    axes.set_xticks([])
    axes.set_xlim(-0.6, len(points) - 0.4)


def _drift_figure(runs: _Runs, drawn: Mapping[str, str]) -> Picture | None:
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
    names = {senior: drawn[senior] for by_senior in drifts.values() for senior in by_senior}
    return Picture("drift", "Drift from the junior", caption, _draw(panels, names, ""))


def _draw_survival(
    label: str, by_senior: Mapping[str, Summary], drawn: Mapping[str, str], axes: Any
) -> None:
    for senior, run in by_senior.items():
        curve = run.content["metrics"]["survival"]
        points = list(zip(curve["thresholds"], curve["shares"], strict=False))
        x, y = [one for one, _ in points], [one for _, one in points]
        axes.plot(x, y, color=drawn[senior])
    axes.set(xlabel="|log(p_sen / p_jun)|, nats", title=label, ylim=(0, 1.02))


def _draw(panels: Sequence[Callable[[Any], None]], names: Mapping[str, str], marker: str) -> bytes:
    """A picture of panels, each drawn by its function, above a legend of names by colour.

    Text is never parsed as mathematics. The same numbers give the same bytes.
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
        _legend(figure, names, marker)
        figure.savefig(png, format="png", dpi=120, metadata={"Software": None})
    return png.getvalue()


def _legend(figure: Figure, names: Mapping[str, str], marker: str) -> None:
    """A legend below all panels, in as many columns as fit."""
    from matplotlib.lines import Line2D

    points = 8.0
    # A line, its gaps, and letters nearly as wide as high.
    widest = (7 + 0.8 * max(map(len, names))) * points
    columns = max(1, int(72 * figure.get_figwidth() // widest))
    form: Any = {"linestyle": "none", "marker": marker} if marker else {}
    lines = [Line2D([], [], color=colour, **form) for colour in names.values()]
    figure.legend(
        lines,
        list(names),
        loc="outside lower center",
        ncols=min(len(names), columns),
        frameon=False,
        fontsize=points,
        handlelength=3,
    )
