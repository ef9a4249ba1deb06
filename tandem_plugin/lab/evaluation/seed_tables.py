"""Tables of pooled runs: each training seed's numbers, and tests with seeds as units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tandem_plugin.lab.evaluation.axis_tables import DELTA
from tandem_plugin.lab.evaluation.comparison import Comparison
from tandem_plugin.lab.evaluation.measures import (
    Measure,
    mean_metric,
    measure_at,
    measured,
    measures,
)
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, number, probability, signed
from tandem_plugin.lab.evaluation.significance import Direction, SeedTest, seed_test

__all__ = ["repeats_table", "seed_tests_table"]

_KL = Measure("KL", 4, False, unit="nats")
_SEEDS_NOTE = (
    "Welch's t-tests on each training seed's macro average: would other seeds differ alike, on "
    "these problems? Methods of one seed are left out."
)


class _Seeds(NamedTuple):
    """One metric of one run: the macro average of each seed, by pooled method, as it is printed."""

    label: str
    kind: str
    chosen: Measure
    values: Mapping[str, Sequence[float]]


def repeats_table(comparison: Comparison, k: int | None) -> PaperTable:
    """Each pooled run's own macro averages, and how far they lie apart.

    k: of pass@k; None takes 8, or the largest there is.
    """
    most = max(len(r.each) for runs in comparison.runs.values() for r in runs.values())
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    for one in _seeds(comparison):
        pooled = next(run for run in comparison.runs[one.label].values() if run.repeats)
        if one.chosen.k is not None and one.chosen != measure_at(pooled, k):
            continue
        if rows:
            rules.append(len(rows))
        decimals = one.chosen.decimals
        for i, (method, found) in enumerate(one.values.items()):
            spread = float(np.std(found, ddof=1)) if len(found) > 1 else float("nan")
            texts = [number(value, decimals) for value in found]
            texts += [""] * (most - len(found))
            numbers = float(np.mean(found)), spread, spread / len(found) ** 0.5
            names = (one.label, one.chosen.heading) if i == 0 else ("", "")
            texts += [number(value, decimals) for value in numbers]
            rows.append(tuple(Cell(text) for text in (*names, method, *texts)))
    return PaperTable(
        "repeats",
        "Macro averages of each pooled run",
        ("Run", "Metric", "Method", *(str(i + 1) for i in range(most)), "mean", "s.d.", "s.e."),
        tuple(rows),
        tuple(rules),
        3,
    )


def seed_tests_table(comparison: Comparison) -> PaperTable:
    """One-sided t-tests of the last method against each other one, with training seeds as units.

    No rows where no two methods have several seeds. The paper has one seed a method.
    """
    claimed = comparison.seniors[-1]
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    group = ""
    for one in _seeds(comparison):
        several = {name: found for name, found in one.values.items() if len(found) > 1}
        if one.kind == "solo" or claimed not in several or len(several) < 2:
            continue
        if rows and (one.chosen.k is None or one.label != group):
            rules.append(len(rows))
        group = one.label
        for other, values in several.items():
            if other != claimed:
                direction: Direction = "greater" if one.chosen.higher_is_better else "less"
                test = seed_test(several[claimed], values, direction)
                rows.append(_test_row(one, claimed, other, test))
    return PaperTable(
        "significance-seeds",
        "One-sided t-tests with training seeds as units",
        ("Run", "Comparison", "Metric", DELTA, "t", "d.f.", "p"),
        tuple(rows),
        tuple(rules),
        3,
        _SEEDS_NOTE,
    )


def _test_row(one: _Seeds, claimed: str, other: str, test: SeedTest) -> tuple[Cell, ...]:
    sign = ">" if one.chosen.higher_is_better else "<"
    return (
        Cell(one.label),
        Cell(f"{claimed} {sign} {other}"),
        Cell(one.chosen.heading),
        Cell(signed(test.difference, one.chosen.decimals + 1)),
        Cell(signed(test.t, 2)),
        Cell(number(test.degrees, 1)),
        Cell(probability(test.p), stars=test.stars),
    )


def _seeds(comparison: Comparison) -> Iterator[_Seeds]:
    """Every metric of every run of pooled methods."""
    for label, runs in comparison.runs.items():
        pooled = {method: run for method, run in runs.items() if run.repeats}
        if not pooled:
            continue
        kind = next(iter(pooled.values())).kind
        if kind == "drift":
            values = {m: [mean_metric(one, "kl") for one in run.each] for m, run in pooled.items()}
            yield _Seeds(label, kind, _KL, values)
            continue
        each = {
            method: [measured(one, 2, comparison.over) for one in run.each]
            for method, run in pooled.items()
        }
        for chosen in measures(next(iter(pooled.values()))):
            numbers = {
                method: [chosen.scale * found[chosen].macro for found in seeds]
                for method, seeds in each.items()
            }
            yield _Seeds(label, kind, chosen, numbers)
