"""Recovery: what a model moves back of a baseline's drift, plain and cross-fitted.

Displacement log(p_base / p_jun) and shift log(p_other / p_base) share log p_base with opposite
signs, so that noise alone looks as if it were moved back. Cross-fitted, they share no sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tandem_plugin.lab.evaluation import drift
from tandem_plugin.lab.evaluation.half_samples import (
    Counts,
    Floats,
    Half,
    compact,
    generator_for,
    halves,
    halving,
    log_marginals,
    sides_of,
)

__all__ = ["HALVINGS", "Recovered", "RecoverySettings", "recovered", "recovered_of"]

HALVINGS = 16
"""Random halvings of the folds that cross-fitted numbers are means over."""


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Which tokens count, and how counts are smoothed."""

    top: int = drift.TOP
    frequent: int = drift.FREQUENT
    smoothing: float = drift.SMOOTHING


class Recovered(NamedTuple):
    """What a model recovers of a baseline's drift; not a number where it cannot be told."""

    moved_back: float
    """Share of the baseline's most displaced tokens whose shift opposes their displacement."""
    of_top: float
    """Spearman's rho of shift and displacement over them."""
    of_frequent: float
    """The same over the tokens that are frequent in the junior's outputs."""
    cross_fitted: float
    """Share moved back where one half of the samples gives tokens and displacement, and the other
    half the shift."""
    cross_fitted_of_top: float
    """Spearman's rho, likewise."""


def recovered(counts: Counts, chosen: RecoverySettings) -> Recovered:
    """What the other model recovers of the baseline's drift.

    counts: int64 ``[3, folds, vocabulary]`` of junior, baseline and other. Cross-fitted numbers are
    means over random halvings of the folds, both ways, and not a number where there is one fold.
    Raises :class:`EvaluationError` for other shapes. Source: section 4.4 of the paper.
    """
    models, vocabulary = compact(counts, chosen.top)
    folds = models.shape[1]
    own = np.repeat(np.arange(3)[:, None], folds, axis=1)
    generator = generator_for("cross-fitting")
    found = [
        half
        for _ in range(HALVINGS)
        for half in halves(
            sides_of(models, halving(folds, generator), own), vocabulary, chosen.smoothing
        )
    ]
    logs = log_marginals(models.sum(1), vocabulary, chosen.smoothing)
    return recovered_of(logs[1] - logs[0], logs[2] - logs[1], models[0].sum(0), found, chosen)


def recovered_of(
    displacement: Floats,
    shift: Floats,
    junior: Floats,
    found: Iterable[Half],
    chosen: RecoverySettings,
) -> Recovered:
    """The numbers of one displacement and shift, and the means over halves.

    junior: its counts, which say what is frequent; all ``[tokens]``.
    """
    most = drift.most_displaced(displacement, chosen.top)
    often = np.flatnonzero(junior >= chosen.frequent)
    share, of_top = _share_and_rho(displacement[most], shift[most])
    of_often = _share_and_rho(displacement[often], shift[often])[1]
    both = [_cross_fitted(half, chosen.top) for half in found] or [(np.nan, np.nan)]
    return Recovered(share, of_top, of_often, *np.mean(both, axis=0).tolist())


def _cross_fitted(half: Half, top: int) -> tuple[float, float]:
    """A shift of exactly zero is moved back by half, so that noise alone gives one half."""
    most = drift.most_displaced(half.displacement, top)
    most = most[half.seen[most]]
    shift = half.shift[most]
    share, rho = _share_and_rho(half.displacement[most], shift)
    return share + float((shift == 0).sum()) / (2 * max(1, len(most))), rho


def _share_and_rho(displacement: Floats, shift: Floats) -> tuple[float, float]:
    if len(displacement) < 3:
        return np.nan, np.nan
    found = drift.recovery(displacement, shift)
    return found.share_moved_back, found.spearman
