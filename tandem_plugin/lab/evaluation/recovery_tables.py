"""Recovery of runs: what each senior moves back of a baseline's drift, beside its nulls."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation import drift
from tandem_plugin.lab.evaluation.drift_counts import read_counts, read_folds
from tandem_plugin.lab.evaluation.drift_tables import drift_baseline
from tandem_plugin.lab.evaluation.half_samples import Counts
from tandem_plugin.lab.evaluation.measures import mean_metric
from tandem_plugin.lab.evaluation.null_recovery import DEALS, Null, RecoveryNulls, recovery_nulls
from tandem_plugin.lab.evaluation.paper_table import Cell, PaperTable, number
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.evaluation.token_recovery import Recovered, RecoverySettings, recovered

__all__ = ["Recoveries", "recovery_table"]

Runs = Mapping[str, Summary]

_NOTE = (
    "No drift: the responses of all three models are dealt out to them anew. Independent drift: "
    "the model has drifted as far, and its drift has nothing to do with the baseline's. ± is one "
    "standard deviation over deals. Cross-fitted: tokens and displacement from one half of the "
    "samples, shift from the other."
)


class _OfPair(NamedTuple):
    """What one run recovers of another's drift; no nulls where counts have one fold."""

    recovered: Recovered
    nulls: RecoveryNulls | None


class Recoveries:
    """What runs recover of a baseline's drift: each pair is computed once.

    top: how many of the baseline's most displaced tokens count.
    """

    def __init__(self, top: int = drift.TOP) -> None:
        self.top = top
        self._known: dict[tuple[Path, Path], _OfPair] = {}

    def of(self, baseline: Summary, other: Summary) -> _OfPair:
        """The mean over all pairs of their repeats; its nulls spread as those of one pair do.

        Raises :class:`EvaluationError` where counts are missing, or are not of one vocabulary.
        """
        pairs = list(product(baseline.each, other.each))
        deals = max(8, DEALS // len(pairs))
        found = [self._of_pair(*pair, deals) for pair in pairs]
        numbers = Recovered(*np.mean([one.recovered for one in found], axis=0).tolist())
        nulls = [one.nulls for one in found if one.nulls is not None]
        if len(nulls) < len(found):
            return _OfPair(numbers, None)
        means = np.mean(np.array(nulls), axis=0).tolist()  # [pairs, nulls, mean and s.d., numbers]
        return _OfPair(
            numbers, RecoveryNulls(*(Null(*(Recovered(*part) for part in null)) for null in means))
        )

    def _of_pair(self, baseline: Summary, other: Summary, deals: int) -> _OfPair:
        key = baseline.folder, other.folder
        if key not in self._known:
            counts = _counts(baseline, other)
            settings = baseline.settings
            chosen = RecoverySettings(self.top, settings["frequent"], settings["smoothing"])
            nulls = recovery_nulls(counts, chosen, deals) if counts.shape[1] > 1 else None
            self._known[key] = _OfPair(recovered(counts, chosen), nulls)
        return self._known[key]


def recovery_table(label: str, runs: Runs, recoveries: Recoveries) -> PaperTable | None:
    """What each senior recovers of the baseline's drift, and what one that recovers nothing would.

    None where nobody has drifted, or only one senior has. Source: section 4.4 of the paper, which
    has the first column and the first two numbers; its p value of rho is smaller than 500 tokens
    can give.
    """
    baseline = drift_baseline(runs)
    if baseline is None:
        return None
    junior = read_counts(runs[baseline].each[0])[1]
    top = min(recoveries.top, len(junior))
    frequent = int((junior >= runs[baseline].settings["frequent"]).sum())
    rows: list[tuple[Cell, ...]] = []
    rules: list[int] = []
    without_folds = False
    for senior, run in runs.items():
        if senior == baseline or mean_metric(run, "kl") == 0:
            continue
        if rows:
            rules.append(len(rows))
        found = recoveries.of(runs[baseline], run)
        without_folds |= found.nulls is None
        rows += _rows(senior, found, top, frequent)
    if not rows:
        return None
    note = _NOTE
    if without_folds:
        note += (
            " A dash: counted without smoothing, or by an earlier version without folds; run "
            "`tandem eval drift` again."
        )
    about = label.removeprefix("drift").strip()
    return PaperTable(
        f"recovery-{label.replace(' ', '-')}",
        f"Recovery of {baseline}'s drift from {about}, and of what recovers nothing",
        ("Model", "Measure", "measured", "no drift", "independent drift"),
        tuple(rows),
        tuple(rules),
        2,
        note,
    )


def _rows(senior: str, found: _OfPair, top: int, frequent: int) -> list[tuple[Cell, ...]]:
    measures = (
        (f"top {top} moved back (%)", 100, 1),
        (f"ρ, top {top}", 1, 2),
        (f"ρ, {frequent} frequent", 1, 2),
        (f"top {top} moved back, cross-fitted (%)", 100, 1),
        (f"ρ, top {top}, cross-fitted", 1, 2),
    )
    rows = []
    for i, (name, scale, decimals) in enumerate(measures):
        cells = [Cell(number(scale * found.recovered[i], decimals))]
        for null in found.nulls or (None, None):
            if null is None:
                cells.append(Cell("–"))
                continue
            mean, spread = (number(scale * part[i], decimals) for part in null)
            cells.append(Cell(mean, "" if mean == "–" else spread))
        rows.append((Cell(senior if i == 0 else ""), Cell(name), *cells))
    return rows


def _counts(baseline: Summary, other: Summary) -> Counts:
    """Of junior, baseline and other: in folds where both were counted in the same ones.

    In one where counts are not smoothed: a fold lacks tokens that all of them have.
    """
    base, junior = read_folds(baseline)
    theirs, _ = read_folds(other)
    if base.shape[1] != theirs.shape[1]:
        raise EvaluationError(
            f"{str(baseline.folder)!r} counts {base.shape[1]} tokens and {str(other.folder)!r} "
            f"{theirs.shape[1]}: the models must have the same tokenizer."
        )
    three = junior, base, theirs
    if len(base) != len(theirs) or baseline.settings["smoothing"] == 0:
        three = tuple(each.sum(0, keepdims=True) for each in three)
    return np.stack(three)
