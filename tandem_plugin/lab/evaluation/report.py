"""The figures of a folder of results, and the tables of ``tandem compare``, on one page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tandem_plugin._version import __version__
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import InputFiles, write_file
from tandem_plugin.lab.evaluation.comparison import (
    Comparison,
    check_problems,
    compare,
    noted_seniors,
    order_file,
    ordered_seniors,
)
from tandem_plugin.lab.evaluation.figures import (
    Picture,
    Runs,
    accuracy_figure,
    drift_figure,
    senior_figure,
    styles,
)
from tandem_plugin.lab.evaluation.measures import Over
from tandem_plugin.lab.evaluation.rendering import PaperTable, html_table, safe
from tandem_plugin.lab.evaluation.results import (
    KINDS,
    Summary,
    check_comparable,
    find_summaries,
    result_files,
)
from tandem_plugin.lab.evaluation.tables import paper_tables
from tandem_plugin.lab.evaluation.training_log import TrainingLog

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
    logs: Sequence[TrainingLog],
    k: int | None,
    top: int,
    pools: Mapping[str, Sequence[str]],
    over: Over,
    units: Mapping[str, Sequence[str]],
) -> Report:
    """Write ``index.html`` and ``figures/*.png`` under ``out``.

    order: seniors in the order of tables and legends; the first that drifted is the baseline of
    recovery, the last is tested against the others. Those not named come first, as
    :func:`ordered_seniors` has them: the junior's own model, then in the order in which they were
    evaluated. k, top, pools, over, units: as of :func:`paper_tables` and :func:`compare`; figures
    show every run by itself, pooled ones in one colour. No file that is read is written over.
    Raises :class:`EvaluationError` for results that cannot be compared, or where there are none.
    """
    runs, seniors = _runs(results, order)
    summaries = _each(runs)
    inputs = InputFiles(
        results=[file for run in summaries for file in result_files(run.folder)],
        order=[order_file(results)],
        log=[log.path for log in logs],
    )
    drawn = styles([*seniors, *(log.name for log in logs)], pools)
    figures = (
        accuracy_figure(logs, drawn),
        senior_figure(runs, drawn, k, over),
        drift_figure(runs, drawn),
    )
    pictures = [figure for figure in figures if figure is not None]
    comparison = _comparison(runs, seniors, pools, over, units)
    notes: tuple[str, ...] = ("There are results of only one senior: tables compare two or more.",)
    tables: list[PaperTable] = []
    if comparison is not None:
        tables, notes = paper_tables(comparison, k, top), comparison.missing
    page = _page(title, notes, pictures, tables)
    written = {out / "index.html": page.encode("utf-8", "replace")}
    written |= {out / "figures" / f"{one.name}.png": one.png for one in pictures}
    inputs.check_outputs(*written)
    for path, content in written.items():
        write_file(path, content)
    names = tuple(picture.name for picture in pictures)
    return Report(out / "index.html", names, len(tables), notes)


def _runs(results: Path, order: Sequence[str]) -> tuple[Runs, list[str]]:
    """Runs by label, then by senior, each label's comparable; and all seniors, in order."""
    by_label: dict[str, dict[str, Summary]] = {}
    for one in find_summaries(results):
        by_senior = by_label.setdefault(one.label, {})
        if one.senior in by_senior:
            raise EvaluationError(
                "TP880", folder=by_senior[one.senior].folder, other=one.folder, senior=one.senior
            )
        by_senior[one.senior] = one
    if not by_label:
        raise EvaluationError("TP881", results=results)
    known = ordered_seniors(_each(by_label), noted_seniors(results), order)
    for name in order:
        if name not in known:
            raise EvaluationError("TP882", name=name, known=", ".join(sorted(known)))
    ordered = {
        label: {name: by_senior[name] for name in known if name in by_senior}
        for label, by_senior in by_label.items()
    }
    for label, by_senior in ordered.items():
        check_comparable(list(by_senior.values()))
        check_problems(label, list(by_senior.values()))
    return dict(sorted(ordered.items(), key=lambda item: _rank(*item))), known


def _each(runs: Runs) -> list[Summary]:
    return [run for by_senior in runs.values() for run in by_senior.values()]


def _rank(label: str, runs: Mapping[str, Summary]) -> tuple[int, str]:
    return KINDS.index(next(iter(runs.values())).kind), label


def _comparison(
    runs: Runs,
    seniors: Sequence[str],
    pools: Mapping[str, Sequence[str]],
    over: Over,
    units: Mapping[str, Sequence[str]],
) -> Comparison | None:
    """As of ``tandem compare``, of pooled seniors and those evaluated most widely; None of one."""
    counts = {name: sum(name in by_senior for by_senior in runs.values()) for name in seniors}
    pooled = {name for members in pools.values() for name in members}
    most = max(counts.values())
    chosen = [name for name in seniors if counts[name] == most or name in pooled]
    if len(chosen) < 2:
        chosen = list(seniors)
    if len(chosen) < 2:
        return None
    by_senior = {
        name: {label: found[name] for label, found in runs.items() if name in found}
        for name in chosen
    }
    return compare(by_senior, pools=pools, over=over, units=units)


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
