"""Tables of several juniors: by benchmarks, and by seniors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tandem_plugin.evaluation.axis_tables import AVERAGE, DELTA, column
from tandem_plugin.evaluation.comparison import Comparison
from tandem_plugin.evaluation.measures import measure_at, measures
from tandem_plugin.evaluation.paper_table import Cell, PaperTable, best, number, signed
from tandem_plugin.evaluation.results import Summary

__all__ = ["junior_tables", "matrix_tables"]


def junior_tables(comparison: Comparison, k: int | None) -> Iterator[PaperTable]:
    """Juniors by benchmarks, for each schedule, where there are several juniors and two seniors.

    Source: appendix B.2 of the paper.
    """
    if len(comparison.seniors) != 2:
        return
    schedules: dict[str, dict[str, Mapping[str, Summary]]] = {}
    for _, runs in comparison.of_kind("handoff"):
        first = next(iter(runs.values()))
        name = str((first.settings.get("schedule") or {}).get("schedule", "handoff"))
        schedules.setdefault(name, {})[first.junior or ""] = runs
    for name, juniors in schedules.items():
        if len(juniors) > 1:
            yield _junior_table(comparison, name, juniors, k)


def _junior_table(
    comparison: Comparison,
    schedule: str,
    juniors: Mapping[str, Mapping[str, Summary]],
    k: int | None,
) -> PaperTable:
    first = next(iter(next(iter(juniors.values())).values()))
    chosen = measure_at(first, k)
    benchmarks = list(first.problems)
    found = {
        junior: {s: comparison.measured(run)[chosen] for s, run in runs.items()}
        for junior, runs in juniors.items()
    }
    columns = ["Junior"]
    for benchmark in benchmarks:
        columns += [f"{benchmark} {senior}" for senior in comparison.seniors]
        columns.append(f"{benchmark} {DELTA}")
    means = {
        junior: {b: [m.means[b] for m in by_senior.values()] for b in benchmarks}
        for junior, by_senior in found.items()
    }
    over = {b: np.mean([means[j][b] for j in means], axis=0).tolist() for b in benchmarks}
    rows = []
    for name, values in [*means.items(), (AVERAGE, over)]:
        cells = [Cell(name)]
        for benchmark in benchmarks:
            pair = values[benchmark]
            texts = [number(chosen.scale * value, chosen.decimals) for value in pair]
            marked = best(texts, chosen.higher_is_better)
            cells += [Cell(t, bold=b) for t, b in zip(texts, marked, strict=True)]
            cells.append(Cell(signed(chosen.scale * (pair[1] - pair[0]), chosen.decimals)))
        rows.append(tuple(cells))
    return PaperTable(
        f"juniors-{schedule}",
        f"Handoff robustness by junior ({schedule}, {chosen.heading})",
        tuple(columns),
        tuple(rows),
        (len(rows) - 1,),
    )


def matrix_tables(comparison: Comparison, k: int | None) -> Iterator[PaperTable]:
    """Juniors by seniors, macro averages, where there are several juniors.

    Source: appendix B.2 of the paper, which has two seniors; for two, team responses have the table
    by benchmarks instead.
    """
    groups: dict[str, dict[str, Mapping[str, Summary]]] = {}
    for kind in ("handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            junior = next(iter(runs.values())).junior or ""
            groups.setdefault(label.removesuffix(junior).strip(), {})[junior] = runs
    for name, juniors in groups.items():
        is_read = name == "legibility"
        if len(juniors) < 2 or (len(comparison.seniors) == 2 and not is_read):
            continue
        first = next(iter(next(iter(juniors.values())).values()))
        rows: list[tuple[Cell, ...]] = []
        rules: list[int] = []
        for chosen in measures(first) if is_read else [measure_at(first, k)]:
            if rows:
                rules.append(len(rows))
            for i, (junior, runs) in enumerate(juniors.items()):
                found = {s: comparison.measured(run)[chosen] for s, run in runs.items()}
                heading = Cell(chosen.heading if i == 0 else "")
                rows.append((heading, Cell(junior), *column(found, chosen, None)))
        yield PaperTable(
            f"matrix-{name.replace(' ', '-')}",
            f"Juniors by seniors, macro averages ({name})",
            ("Metric", "Junior", *comparison.seniors),
            tuple(rows),
            tuple(rules),
            2,
        )
