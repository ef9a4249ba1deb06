"""What the measure of recovery says of a model that recovers nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import EvaluationError
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
from tandem_plugin.lab.evaluation.token_recovery import Recovered, RecoverySettings, recovered_of

__all__ = ["DEALS", "Null", "RecoveryNulls", "recovery_nulls"]

DEALS = 64
"""Random deals behind a null."""

_NOISE_DEALS = 32
"""Deals by which the noise of a log-ratio is estimated."""

_MOST_BINS, _LEAST_IN_BIN = 20, 25


class Null(NamedTuple):
    """A null of each of the numbers: its mean, and its standard deviation over deals."""

    mean: Recovered
    standard_deviation: Recovered


class RecoveryNulls(NamedTuple):
    """What a model that recovers nothing would be said to recover."""

    no_drift: Null
    """All three models write alike."""
    independent_drift: Null
    """The other model has drifted as far as it has, but in directions that have nothing to do with
    the baseline's."""


def recovery_nulls(counts: Counts, chosen: RecoverySettings, deals: int = DEALS) -> RecoveryNulls:
    """The nulls of :func:`recovered`, from the same samples.

    counts: int64 ``[3, folds, vocabulary]``, of two folds at least. *No drift*: in every fold, the
    three models' responses are dealt out to them anew; what clusters in a response stays together.
    *Independent drift*: to such a deal, which has no drift, the baseline's log-ratios to the junior
    are added as they are, and the other model's after they were shuffled among tokens of like
    frequency. Both are first shrunk, frequency by frequency, so that with the deal's noise they
    vary as was measured. Deals follow from a fixed seed. Raises :class:`EvaluationError` for other
    shapes.
    """
    models, vocabulary = compact(counts, chosen.top)
    if models.shape[1] < 2 or deals < 2:
        raise EvaluationError("A null of recovery takes two folds and two deals at least.")
    generator = generator_for("nulls")
    bins = _bins(models.sum((0, 1)))
    base, other = _drifts(models, bins, vocabulary, chosen.smoothing, generator)
    still, drifted = [], []
    for _ in range(deals):
        sides = _dealt(models, generator)
        junior = sides[:, 0].sum(0)
        logs = log_marginals(sides.sum(0), vocabulary, chosen.smoothing)
        displacement, shift = logs[1] - logs[0], logs[2] - logs[1]
        parts = list(halves(sides, vocabulary, chosen.smoothing))
        still.append(recovered_of(displacement, shift, junior, parts, chosen))
        away = _shuffled(other, bins, generator) - base
        moved = [Half(part.displacement + base, part.shift + away, part.seen) for part in parts]
        drifted.append(recovered_of(displacement + base, shift + away, junior, moved, chosen))
    return RecoveryNulls(_null(still), _null(drifted))


def _dealt(models: Floats, generator: np.random.Generator) -> Floats:
    """Counts of two random halves, each fold's three models in an order of its own.

    In both halves every model is given as many folds of one as of another, as nearly as can be, so
    that a deal holds their noise and nothing of their drift.
    """
    half = halving(models.shape[1], generator)
    turns = np.empty(len(half), dtype=np.int64)
    for side in (half, ~half):
        turns[side] = (generator.permutation(int(side.sum())) + generator.integers(3)) % 3
    return sides_of(models, half, (turns + np.arange(3)[:, None]) % 3)


def _bins(written: Floats) -> list[NDArray[np.int64]]:
    """Places of tokens of like frequency; those that nobody wrote have a bin of their own."""
    used = np.flatnonzero(written)
    order = used[np.argsort(written[used], kind="stable")]
    parts = max(1, min(_MOST_BINS, len(order) // _LEAST_IN_BIN))
    found = [*np.array_split(order, parts), np.flatnonzero(written == 0)]
    return [members for members in found if len(members)]


def _drifts(
    models: Floats,
    bins: list[NDArray[np.int64]],
    vocabulary: int,
    smoothing: float,
    generator: np.random.Generator,
) -> tuple[Floats, Floats]:
    """The log-ratios of baseline and other to the junior ``[2, tokens]``, without their noise.

    In every bin they are shrunk, so that with the noise of a deal they have the mean square that
    was measured. The other model's have the mean zero there: bins are of what all three wrote, so
    that one model's drift says something of the bin, and the bin of the other model's drift.
    """
    noise = np.zeros(len(bins))
    for _ in range(_NOISE_DEALS):
        logs = log_marginals(_dealt(models, generator).sum(0), vocabulary, smoothing)
        ratios = logs - np.roll(logs, 1, axis=0)
        noise += [float(np.mean(ratios[:, members] ** 2)) for members in bins]
    logs = log_marginals(models.sum(1), vocabulary, smoothing)
    base, other = logs[1] - logs[0], logs[2] - logs[0]
    for members, level in zip(bins, noise / _NOISE_DEALS, strict=True):
        base[members] *= _root(float(np.mean(base[members] ** 2)), level)
        size = float(np.mean(other[members] ** 2))
        other[members] -= other[members].mean()
        spread = max(float(np.mean(other[members] ** 2)), float(np.finfo(np.float64).tiny))
        other[members] *= _root(size, level) * np.sqrt(size / spread)
    return base, other


def _root(size: float, noise: float) -> float:
    """By what to multiply values of this mean square, of which so much is noise."""
    return float(np.sqrt(max(0.0, 1 - noise / size))) if size > 0 else 0.0


def _shuffled(
    values: Floats, bins: list[NDArray[np.int64]], generator: np.random.Generator
) -> Floats:
    """The same values, each at another token of its bin."""
    found = values.copy()
    for members in bins:
        found[members] = generator.permutation(values[members])
    return found


def _null(found: list[Recovered]) -> Null:
    values = np.array(found)
    return Null(Recovered(*values.mean(0).tolist()), Recovered(*values.std(0, ddof=1).tolist()))
