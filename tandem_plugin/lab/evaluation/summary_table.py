"""Macro averages on every axis: one row a senior."""

from __future__ import annotations

from collections.abc import Sequence

from tandem_plugin.lab.evaluation.axis_tables import column
from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.measures import mean_metric, measure_at, measures
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, best, number

__all__ = ["summary_columns", "summary_table"]


def summary_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Macro averages on every axis, a row a senior. Source: section 5.2 of the paper."""
    columns = summary_columns(comparison, k, comparison.seniors)
    return PaperTable(
        "summary",
        "Macro averages on every axis",
        ("Method", *(name for name, _ in columns)),
        tuple(
            (Cell(senior), *(cells[i] for _, cells in columns))
            for i, senior in enumerate(comparison.seniors)
        ),
    )


def summary_columns(
    comparison: Comparison, k: int | None, seniors: Sequence[str]
) -> list[tuple[str, list[Cell]]]:
    """(heading, a cell for each of these seniors) of every axis, the best of them bold.

    k: of pass@k; None takes 8, or the largest there is.
    """
    columns: list[tuple[str, list[Cell]]] = []
    for kind in ("solo", "handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            first = next(iter(runs.values()))
            wanted = measures(first) if kind == "legibility" else [measure_at(first, k)]
            for chosen in wanted:
                found = {s: comparison.measured(runs[s])[chosen] for s in seniors}
                columns.append((f"{label}: {chosen.heading}", column(found, chosen, None)))
    for label, runs in comparison.of_kind("drift"):
        texts = [number(mean_metric(runs[s], "kl"), 4) for s in seniors]
        cells = [Cell(t, bold=b) for t, b in zip(texts, best(texts, False), strict=True)]
        columns.append((f"{label}: KL (nats, ↓)", cells))
    return columns
