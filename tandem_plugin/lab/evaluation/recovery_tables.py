"""Recovery of runs: what each senior moves back of a baseline's drift."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.drift_run import read_counts
from tandem_plugin.lab.evaluation.drift_tables import drift_baseline
from tandem_plugin.lab.evaluation.measures import mean_metric
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, number
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.token_recovery import Recovered, RecoverySettings, recovered

__all__ = ["recovery_table"]

Runs = Mapping[str, Summary]


def recovery_table(label: str, runs: Runs, top: int) -> PaperTable | None:
    """What each senior recovers of the baseline's drift.

    top: how many of the baseline's most displaced tokens count. None where nobody has drifted, or
    only one senior has. Source: section 4.4 of the paper, whose p value of rho is smaller than 500
    tokens can give.
    """
    baseline = drift_baseline(runs)
    if baseline is None:
        return None
    junior = read_counts(runs[baseline].each[0])[1]
    top = min(top, len(junior))
    frequent = int((junior >= runs[baseline].settings["frequent"]).sum())
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    for senior, run in runs.items():
        if senior == baseline or mean_metric(run, "kl") == 0:
            continue
        if rows:
            rules.append(len(rows))
        rows += _rows(senior, _mean_recovered(runs[baseline], run, top), top, frequent)
    if not rows:
        return None
    about = label.removeprefix("drift").strip()
    return PaperTable(
        f"recovery-{label.replace(' ', '-')}",
        f"Recovery of {baseline}'s drift from {about}",
        ("Model", "Measure", "measured"),
        tuple(rows),
        tuple(rules),
        2,
    )


def _rows(senior: str, found: Recovered, top: int, frequent: int) -> list[tuple[Cell, ...]]:
    return [
        (
            Cell(senior),
            Cell(f"top {top} moved back (%)"),
            Cell(number(100 * found.moved_back, 1)),
        ),
        (Cell(""), Cell(f"ρ, top {top}"), Cell(number(found.of_top, 2))),
        (Cell(""), Cell(f"ρ, {frequent} frequent"), Cell(number(found.of_frequent, 2))),
    ]


def _mean_recovered(baseline: Summary, other: Summary, top: int) -> Recovered:
    """The mean over all pairs of their repeats."""
    pairs = product(baseline.each, other.each)
    found = [_recovered(*pair, top) for pair in pairs]
    return Recovered(*np.mean(found, axis=0).tolist())


def _recovered(baseline: Summary, other: Summary, top: int) -> Recovered:
    base, junior = read_counts(baseline)
    theirs, _ = read_counts(other)
    if base.shape != theirs.shape:
        raise EvaluationError(
            f"{str(baseline.folder)!r} counts {len(base)} tokens and {str(other.folder)!r} "
            f"{len(theirs)}: the models must have the same tokenizer."
        )
    settings = baseline.settings
    chosen = RecoverySettings(top, settings["frequent"], settings["smoothing"])
    return recovered(junior, base, theirs, chosen)
