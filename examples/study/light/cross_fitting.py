"""What a model moves back of a baseline's drift, where noise alone moves one half back.

Displacement log(p_base / p_jun) and shift log(p_other / p_base) share log p_base with opposite
signs, so that noise alone looks as if it were moved back. Cross-fitted, tokens and displacement
come from one half of the samples and the shift from the other: they share no sample.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tandem_plugin.lab.evaluation.drift import SMOOTHING, most_displaced
from tandem_plugin.seeds import derive_seed

__all__ = ["HALVINGS", "moved_back_share"]

HALVINGS = 16
"""Random halvings of the folds that a share is the mean over."""


def moved_back_share(counts: np.ndarray, top: int) -> float:
    """The share of the baseline's ``top`` most displaced tokens that the other model moves back.

    counts: int64 ``[3, folds, vocabulary]`` of junior, baseline and other. The mean over random
    halvings of the folds, both ways. A shift of exactly zero is moved back by half.
    """
    folds = counts.shape[1]
    seed = derive_seed(0, "recovery", "cross-fitting")
    generator = np.random.Generator(np.random.Philox(key=seed))
    shares = []
    for _ in range(HALVINGS):
        half = generator.permutation(folds) < (folds + 1) // 2
        sides = counts[:, half].sum(1), counts[:, ~half].sum(1)
        shares += list(_shares(*sides, top))
    return float(np.mean(shares))


def _shares(one: np.ndarray, two: np.ndarray, top: int) -> Iterator[float]:
    """The share with displacement from each half ``[3, vocabulary]`` and shift from the other."""
    for first, second in ((one, two), (two, one)):
        displacement = _log_marginal(first[1]) - _log_marginal(first[0])
        shift = _log_marginal(second[2]) - _log_marginal(second[1])
        most = most_displaced(displacement, top)
        most = most[second[1][most] + second[2][most] > 0]  # the others have no shift there
        products = displacement[most] * shift[most]
        yield float(np.mean(products < 0) + (shift[most] == 0).sum() / (2 * max(1, len(most))))


def _log_marginal(counts: np.ndarray) -> np.ndarray:
    total = counts.sum() + SMOOTHING * len(counts)
    return np.asarray(np.log((counts + SMOOTHING) / total))
