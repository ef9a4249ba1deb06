"""Tables of several juniors: for each junior, every senior by benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tandem_plugin.lab.evaluation.axis_tables import (
    AVERAGE,
    column,
    delta,
    delta_name,
    delta_rows,
)
from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.measures import Measure, Measured, measure_at, measures
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, best, number
from tandem_plugin.lab.evaluation.results import Summary

__all__ = ["junior_tables"]

_Rows = list[tuple[Cell, ...]]


def junior_tables(comparison: Comparison, k: int | None) -> Iterator[PaperTable]:
    """Team responses of each schedule and legibility, where there are several juniors.

    Any number of seniors; the last one's difference from each other one. The last part is the mean
    over juniors. k: of pass@k; None takes 8, or the largest there is. Source: appendix B.2 of the
    paper.
    """
    groups: dict[tuple[str, tuple[str, ...]], dict[str, Mapping[str, Summary]]] = {}
    for kind in ("handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            first = next(iter(runs.values()))
            junior = first.junior or ""
            key = label.removesuffix(junior).strip(), tuple(first.problems)
            groups.setdefault(key, {})[junior] = runs
    names: list[str] = []
    for (name, benchmarks), juniors in groups.items():
        if len(juniors) > 1:
            names.append(name)
            yield _table(comparison, name, names.count(name), benchmarks, juniors, k)


def _table(
    comparison: Comparison,
    name: str,
    nth: int,
    benchmarks: Sequence[str],
    juniors: Mapping[str, Mapping[str, Summary]],
    k: int | None,
) -> PaperTable:
    first = next(iter(next(iter(juniors.values())).values()))
    rows: _Rows = []
    rules: list[int] = []
    for chosen in measures(first) if first.kind == "legibility" else [measure_at(first, k)]:
        found = {
            junior: {senior: comparison.measured(run)[chosen] for senior, run in runs.items()}
            for junior, runs in juniors.items()
        }
        parts = [_of_junior(by_senior, chosen, benchmarks) for by_senior in found.values()]
        parts.append(_over_juniors(found, chosen, benchmarks))
        for i, (junior, part) in enumerate(zip([*found, AVERAGE], parts, strict=True)):
            if rows:
                rules.append(len(rows))
            metric = chosen.heading if i == 0 else ""
            rows.append((Cell(metric), Cell(junior), *part[0]))
            rows += [(Cell(""), Cell(""), *cells) for cells in part[1:]]
    return PaperTable(
        f"juniors-{name.replace(' ', '-')}" + (f"-{nth}" if nth > 1 else ""),
        f"Seniors by junior ({name})",
        ("Metric", "Junior", "Model", *benchmarks, AVERAGE),
        tuple(rows),
        tuple(rules),
        3,
    )


def _of_junior(found: Mapping[str, Measured], chosen: Measure, benchmarks: Sequence[str]) -> _Rows:
    """Model, benchmarks and average, and the differences."""
    columns = [column(found, chosen, benchmark) for benchmark in [*benchmarks, None]]
    rows: _Rows = [
        (Cell(senior), *(cells[i] for cells in columns)) for i, senior in enumerate(found)
    ]
    return rows + [cells[1:] for cells in delta_rows(found, chosen, benchmarks)]


def _over_juniors(
    found: Mapping[str, Mapping[str, Measured]], chosen: Measure, benchmarks: Sequence[str]
) -> _Rows:
    """The same of the means over juniors, whose errors are not those of one run: none is given."""
    seniors = list(next(iter(found.values())))
    means = np.array(
        [
            [[of[s].means[b] for b in benchmarks] + [of[s].macro] for s in seniors]
            for of in found.values()
        ]
    ).mean(axis=0)  # [seniors, benchmarks and average]
    columns = []
    for values in means.T:
        texts = [number(chosen.scale * float(value), chosen.decimals) for value in values]
        marks = best(texts, chosen.higher_is_better)
        columns.append([Cell(text, bold=bold) for text, bold in zip(texts, marks, strict=True)])
    rows: _Rows = [
        (Cell(senior), *(cells[i] for cells in columns)) for i, senior in enumerate(seniors)
    ]
    others = seniors[:-1]
    for i, other in enumerate(others):
        cells = [delta(float(value), chosen) for value in means[-1] - means[i]]
        rows.append((Cell(delta_name(other, len(others))), *cells))
    return rows
