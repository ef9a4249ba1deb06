"""The paper's tables from a comparison: better values bold, differences, stars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tandem_plugin.lab.evaluation import drift
from tandem_plugin.lab.evaluation.axis_tables import DELTA, axis_table
from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.drift_tables import drift_table, over_emitted_tables
from tandem_plugin.lab.evaluation.junior_tables import junior_tables
from tandem_plugin.lab.evaluation.matched_tables import Checkpoints, matched_tables
from tandem_plugin.lab.evaluation.measures import Measure, Measured, measured, measures
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, number, probability, signed
from tandem_plugin.lab.evaluation.recovery_tables import recovery_table
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.seed_tables import repeats_table, seed_tests_table
from tandem_plugin.lab.evaluation.significance import Direction, PairedTest, paired_test
from tandem_plugin.lab.evaluation.summary_table import summary_table

__all__ = ["TableOptions", "drift_tables", "headline", "paper_tables"]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What can be chosen of the tables."""

    k: int | None = None
    """Of pass@k in the tables of one k; None takes 8, or the largest there is."""
    top: int = drift.TOP
    """How many of the baseline's most displaced tokens recovery is about."""
    checkpoints: Checkpoints = field(default_factory=dict)
    """Training runs of which several checkpoints are compared."""


def paper_tables(comparison: Comparison, options: TableOptions) -> list[PaperTable]:
    """All tables that the results allow, in the order of the paper's sections.

    The last senior is the one that is claimed to be better than each of the others.
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
        tables += [*drift_tables(label, runs, options.top), *over_emitted_tables(label, runs)]
    tables += junior_tables(comparison, options.k)
    tables.append(summary_table(comparison, options.k))
    tables += matched_tables(comparison, options.checkpoints, options.k)
    more = (
        repeats_table(comparison, options.k),
        _significance_table(comparison),
        seed_tests_table(comparison),
    )
    return [*tables, *(table for table in more if table.rows)]


def drift_tables(label: str, runs: Mapping[str, Summary], top: int) -> list[PaperTable]:
    """Divergence, and recovery where there is any; top: how many tokens recovery is about."""
    recovery = recovery_table(label, runs, top)
    return [drift_table(label, runs), *([] if recovery is None else [recovery])]


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
    direction: Direction = "greater" if chosen.higher_is_better else "less"
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
