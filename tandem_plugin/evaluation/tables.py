"""The paper's tables from a comparison: better values bold, differences, stars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from tandem_plugin.evaluation import drift
from tandem_plugin.evaluation.axis_tables import DELTA, axis_table, column
from tandem_plugin.evaluation.comparison import Comparison
from tandem_plugin.evaluation.drift_tables import drift_table, over_emitted_tables
from tandem_plugin.evaluation.junior_tables import junior_tables, matrix_tables
from tandem_plugin.evaluation.measures import (
    Measure,
    Measured,
    mean_metric,
    measure_at,
    measured,
    measures,
)
from tandem_plugin.evaluation.paper_table import (
    Cell,
    PaperTable,
    best,
    number,
    probability,
    signed,
)
from tandem_plugin.evaluation.results import Summary
from tandem_plugin.evaluation.significance import PairedTest, paired_test

__all__ = ["headline", "paper_tables"]


def paper_tables(
    comparison: Comparison, k: int | None = None, top: int = drift.TOP
) -> list[PaperTable]:
    """All tables that the results allow, in the order of the paper's sections.

    k: of pass@k in the tables of one k; None takes 8, or the largest there is. top: how many of the
    baseline's most displaced tokens recovery is about. The last senior is the one that is claimed
    to be better than each of the others.
    """
    tables = [
        axis_table(comparison, label, runs)
        for kind in ("solo", "handoff", "legibility")
        for label, runs in comparison.of_kind(kind)
    ]
    tables += [
        table
        for label, runs in comparison.of_kind("handoff")
        if (table := _share_table(label, runs)).rows
    ]
    for label, runs in comparison.of_kind("drift"):
        tables += [drift_table(label, runs, top), *over_emitted_tables(label, runs)]
    tables += junior_tables(comparison, k)
    tables += matrix_tables(comparison, k)
    tables.append(_summary_table(comparison, k))
    more = (_repeats_table(comparison, k), _significance_table(comparison))
    return [*tables, *(table for table in more if table.rows)]


def headline(summary: Summary) -> dict[str, float]:
    """The macro averages of a run, in the units of tables, for people who wait for it."""
    if summary.kind == "drift":
        return {"kl": float(summary.content["metrics"]["kl"])}
    return {
        chosen.name.lower().replace(" ", "_"): chosen.scale * found.macro
        for chosen, found in measured(summary, resamples=2).items()
    }


def _share_table(label: str, runs: Mapping[str, Summary]) -> PaperTable:
    """The senior's share of team responses: mean, and standard deviation over responses.

    Of pooled runs both are means over the runs. Source: appendix B.3 of the paper.
    """
    benchmarks = list(next(iter(runs.values())).problems)
    rows = []
    for senior, run in runs.items():
        cells = [_share_cell(run, benchmark) for benchmark in benchmarks]
        if any(cell.text != "–" for cell in cells):
            rows.append((Cell(senior), *cells))
    about = label.removeprefix("handoff").strip()
    return PaperTable(
        f"senior-share-{about.replace(' ', '-')}",
        f"The senior's share of team responses, % of tokens ± one standard deviation ({about})",
        ("Model", *benchmarks),
        tuple(rows),
    )


def _share_cell(run: Summary, benchmark: str) -> Cell:
    found = [
        one.content.get("metrics", {}).get(benchmark, {}).get("senior_share") or {}
        for one in run.each
    ]
    if any(one.get("mean") is None for one in found):
        return Cell("–")
    text = number(100 * float(np.mean([one["mean"] for one in found])), 1)
    if any(one.get("standard_deviation") is None for one in found):
        return Cell(text)
    return Cell(text, number(100 * float(np.mean([s["standard_deviation"] for s in found])), 1))


def _summary_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Macro averages on every axis, a row a senior. Source: section 5.2 of the paper."""
    columns: list[tuple[str, list[Cell]]] = []
    for kind in ("solo", "handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            first = next(iter(runs.values()))
            wanted = measures(first) if kind == "legibility" else [measure_at(first, k)]
            for chosen in wanted:
                found = {s: comparison.measured(run)[chosen] for s, run in runs.items()}
                columns.append((f"{label}: {chosen.heading}", column(found, chosen, None)))
    for label, runs in comparison.of_kind("drift"):
        texts = [number(mean_metric(run, "kl"), 4) for run in runs.values()]
        cells = [Cell(t, bold=b) for t, b in zip(texts, best(texts, False), strict=True)]
        columns.append((f"{label}: KL (nats, ↓)", cells))
    return PaperTable(
        "summary",
        "Macro averages on every axis",
        ("Method", *(name for name, _ in columns)),
        tuple(
            (Cell(senior), *(cells[i] for _, cells in columns))
            for i, senior in enumerate(comparison.seniors)
        ),
    )


def _repeats_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Each pooled run's own macro averages, and how far they lie apart."""
    most = max(len(r.each) for runs in comparison.runs.values() for r in runs.values())
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    for label, heading, decimals, values in _of_repeats(comparison, k):
        if rows:
            rules.append(len(rows))
        for i, (senior, found) in enumerate(values.items()):
            spread = float(np.std(found, ddof=1)) if len(found) > 1 else float("nan")
            texts = [number(one, decimals) for one in found]
            texts += [""] * (most - len(found))
            numbers = (number(float(np.mean(found)), decimals), number(spread, decimals))
            names = (label, heading) if i == 0 else ("", "")
            rows.append(tuple(Cell(text) for text in (*names, senior, *texts, *numbers)))
    return PaperTable(
        "repeats",
        "Macro averages of each pooled run",
        ("Run", "Metric", "Method", *(str(i + 1) for i in range(most)), "mean", "s.d."),
        tuple(rows),
        tuple(rules),
        3,
    )


def _of_repeats(
    comparison: Comparison, k: int | None
) -> Iterator[tuple[str, str, int, dict[str, list[float]]]]:
    """(label, metric, decimals, each repeat's value by method) of what is pooled."""
    for label, runs in comparison.runs.items():
        pooled = {senior: run for senior, run in runs.items() if run.repeats}
        if not pooled:
            continue
        first = next(iter(pooled.values()))
        if first.kind == "drift":
            values = {s: [mean_metric(one, "kl") for one in r.each] for s, r in pooled.items()}
            yield label, "KL (nats, ↓)", 4, values
            continue
        for chosen in measures(first) if first.kind == "legibility" else [measure_at(first, k)]:
            values = {
                senior: [chosen.scale * measured(one, 2)[chosen].macro for one in run.each]
                for senior, run in pooled.items()
            }
            yield label, chosen.heading, chosen.decimals, values


def _significance_table(comparison: Comparison) -> PaperTable:
    """Paired one-sided t-tests of the last senior against each other one.

    Source: section 5.3 of the paper.
    """
    *others, claimed = comparison.seniors
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    for kind in ("handoff", "legibility"):
        for label, runs in comparison.of_kind(kind):
            for chosen in measures(runs[claimed]):
                if rows and (kind == "legibility" or chosen.k == 1):
                    rules.append(len(rows))
                values = {s: comparison.measured(run)[chosen] for s, run in runs.items()}
                for other in others:
                    test = _test(values[claimed], values[other], chosen)
                    rows.append(_test_row(label, chosen, claimed, other, test))
    return PaperTable(
        "significance",
        "Paired one-sided t-tests on per-problem statistics",
        ("Run", "Comparison", "Metric", DELTA, "t", "p"),
        tuple(rows),
        tuple(rules),
        3,
    )


def _test(claimed: Measured, other: Measured, chosen: Measure) -> PairedTest | None:
    if len(claimed.pooled) < 2:
        return None
    direction: Literal["greater", "less"] = "greater" if chosen.higher_is_better else "less"
    return paired_test(claimed.pooled, other.pooled, direction)


def _test_row(
    label: str, chosen: Measure, claimed: str, other: str, test: PairedTest | None
) -> tuple[Cell, ...]:
    sign = ">" if chosen.higher_is_better else "<"
    names = Cell(label), Cell(f"{claimed} {sign} {other}"), Cell(chosen.heading)
    if test is None:
        return (*names, Cell("–"), Cell("–"), Cell("–"))
    decimals = chosen.decimals + 1
    return (
        *names,
        Cell(signed(chosen.scale * test.difference, decimals)),
        Cell(signed(test.t, 2)),
        Cell(probability(test.p), stars=test.stars),
    )
