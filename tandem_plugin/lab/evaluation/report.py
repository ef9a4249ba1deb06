"""The figures of a folder of results, and the tables of ``tandem compare``, on one page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tandem_plugin._version import __version__
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import write_file
from tandem_plugin.lab.evaluation.comparison import (
    BySenior,
    Comparison,
    Groups,
    compare,
    ordered_seniors,
    runs_by_label,
)
from tandem_plugin.lab.evaluation.figures import Picture, drift_figure, senior_figure, styles
from tandem_plugin.lab.evaluation.measures import Over
from tandem_plugin.lab.evaluation.rendering import PaperTable, html_table, safe
from tandem_plugin.lab.evaluation.results import Summary, check_comparable, find_summaries
from tandem_plugin.lab.evaluation.tables import paper_tables

__all__ = ["Report", "build_report"]


@dataclass(frozen=True, slots=True)
class Report:
    """What was written."""

    page: Path
    figures: tuple[str, ...]
    tables: int
    notes: tuple[str, ...]


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
) -> Report:
    """Write ``index.html`` and ``figures/*.png`` under ``out``.

    order: seniors in the order of tables and legends, as of :func:`ordered_seniors`; the first that
    drifted is the baseline of recovery, the last is tested against the others. k, top, pools, over,
    units: as of :func:`paper_tables` and :func:`compare`; figures show every run by itself, pooled
    ones in one colour. Raises :class:`EvaluationError` for results that cannot be compared, or
    where there are none.
    """
    by_senior = _by_senior(results, order)
    runs = runs_by_label(by_senior)
    for same in runs.values():
        check_comparable(list(same.values()))
    drawn = styles(list(by_senior), pools)
    figures = (senior_figure(runs, drawn, k, over), drift_figure(runs, drawn))
    pictures = [figure for figure in figures if figure is not None]
    comparison = _comparison(by_senior, pools, over, units)
    notes: tuple[str, ...] = ("There are results of only one senior: tables compare two or more.",)
    tables: list[PaperTable] = []
    if comparison is not None:
        tables, notes = paper_tables(comparison, k, top), comparison.missing
    page = out / "index.html"
    write_file(page, _page(title, notes, pictures, tables).encode("utf-8", "replace"))
    for one in pictures:
        write_file(out / "figures" / f"{one.name}.png", one.png)
    return Report(page, tuple(one.name for one in pictures), len(tables), notes)


def _by_senior(results: Path, order: Sequence[str]) -> BySenior:
    """The runs of all seniors, in order, by label."""
    by_senior: dict[str, dict[str, Summary]] = {}
    for one in find_summaries(results):
        known = by_senior.setdefault(one.senior, {})
        if one.label in known:
            first = known[one.label].folder
            raise EvaluationError("TP880", folder=first, other=one.folder, senior=one.senior)
        known[one.label] = one
    if not by_senior:
        raise EvaluationError("TP881", results=results)
    for name in order:
        if name not in by_senior:
            raise EvaluationError("TP882", name=name, known=", ".join(sorted(by_senior)))
    summaries = [run for runs in by_senior.values() for run in runs.values()]
    return {name: by_senior[name] for name in ordered_seniors(summaries, order)}


def _comparison(by_senior: BySenior, pools: Groups, over: Over, units: Groups) -> Comparison | None:
    """As of ``tandem compare``, of pooled seniors and those with the most runs; None of one."""
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
    """One HTML file that runs no code.

    Its Content Security Policy allows its own style and pictures, and nothing else.
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
