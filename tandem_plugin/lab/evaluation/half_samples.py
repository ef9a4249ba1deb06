"""Counts of three models in folds, and in random halves of their folds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import EvaluationError
from tandem_plugin.seeds import derive_seed

__all__ = [
    "Counts",
    "Floats",
    "Half",
    "compact",
    "generator_for",
    "halves",
    "halving",
    "log_marginals",
    "sides_of",
]

Counts: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class Half(NamedTuple):
    """Displacement of one half of the samples and shift of the other: no response is in both."""

    displacement: Floats
    shift: Floats
    seen: NDArray[np.bool_]
    """The tokens that the shift's half has; the others have no shift there."""


def compact(counts: Counts, top: int) -> tuple[Floats, int]:
    """Counts as floats, without most of the tokens that nobody wrote; and the vocabulary's size.

    counts: int64 ``[3, folds, vocabulary]``. Tokens that nobody wrote are all alike: more of them
    than ``top`` change nothing. Raises :class:`EvaluationError` for other shapes.
    """
    if counts.ndim != 3 or len(counts) != 3 or not counts.size:
        raise EvaluationError(
            "Recovery takes counts of junior, baseline and other, [3, folds, vocabulary]; got "
            f"{list(counts.shape)}."
        )
    written = counts.any((0, 1))
    kept = written | (np.cumsum(~written) <= top)
    return counts[:, :, kept].astype(np.float64), counts.shape[2]


def log_marginals(counts: Floats, vocabulary: int, smoothing: float) -> Floats:
    """log((count + s) / (total + s V)) along the last axis: of :func:`drift.marginal`.

    Raises :class:`EvaluationError` where it would be that of zero.
    """
    if smoothing <= 0 and not counts.all():
        raise EvaluationError(
            f"smoothing={smoothing}: tokens that were never written need smoothing above 0."
        )
    total = counts.sum(-1, keepdims=True) + smoothing * vocabulary
    return np.asarray(np.log((counts + smoothing) / total))


def generator_for(purpose: str) -> np.random.Generator:
    """A generator of its own for a purpose, the same in every process."""
    return np.random.Generator(np.random.Philox(key=derive_seed(0, "recovery", purpose)))


def halving(folds: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Half of the folds, at random."""
    return np.asarray(generator.permutation(folds) < (folds + 1) // 2)


def sides_of(models: Floats, half: NDArray[np.bool_], order: NDArray[np.int64]) -> Floats:
    """Counts ``[2, 3, tokens]`` of both halves: model m has those of ``order[m, fold]``."""
    folds = models.shape[1]
    chosen = np.zeros((2, 3, 3, folds))
    chosen[np.where(half, 0, 1), np.arange(3)[:, None], order, np.arange(folds)] = 1
    counts = chosen.reshape(6, -1) @ models.reshape(3 * folds, -1)  # whole numbers: exact
    return np.asarray(counts.reshape(2, 3, -1))


def halves(sides: Floats, vocabulary: int, smoothing: float) -> Iterator[Half]:
    """Displacement and shift of different halves, both ways; none where a half has no tokens."""
    if not sides.sum(-1).all():
        return
    logs = log_marginals(sides, vocabulary, smoothing)
    for x, y in ((0, 1), (1, 0)):
        seen = sides[y, 1] + sides[y, 2] > 0
        yield Half(logs[x, 1] - logs[x, 0], logs[y, 2] - logs[y, 1], seen)
