"""Bootstrap standard errors: how far a mean would move with other problems of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import EvaluationError
from tandem_plugin.seeds import derive_seed

__all__ = ["RESAMPLES", "BootstrapErrors", "bootstrap_errors", "resampled_means"]

RESAMPLES = 10_000
"""Section 4.5 of the paper, table of legibility."""

_MOST_COUNTS = 2**23
"""Resampling counts held at a time: 64 MiB."""


@dataclass(frozen=True, slots=True)
class BootstrapErrors:
    """Standard errors of the means of some statistics, which are ``[statistics]`` each."""

    benchmarks: dict[str, NDArray[np.float64]]
    macro: NDArray[np.float64]
    """Of the mean over benchmarks, each resampled by itself."""


def bootstrap_errors(
    values: Mapping[str, NDArray[np.float64]],
    resamples: int = RESAMPLES,
    seed: int = 0,
    weights: Mapping[str, NDArray[np.float64]] | None = None,
) -> BootstrapErrors:
    """Standard errors over resamples of problems, stratified by benchmark.

    values: per-problem statistics ``[problems, statistics]`` of each benchmark. weights: of each
    problem, ``[problems]``, where its mean is a weighted one, as over the positions of responses;
    with repeats, values are ``[problems, repeats, statistics]``, weights ``[problems, repeats]``,
    and a benchmark's number is the mean over the repeats' weighted means. A benchmark's resamples
    follow from its name and ``seed``, whatever other benchmarks there are. Raises
    :class:`EvaluationError` for a benchmark without problems or fewer than two resamples. Source:
    sections 4.1 and 4.5 of the paper; Efron (1979).
    """
    if not values:
        raise EvaluationError("There are no benchmarks to resample.")
    if resamples < 2:
        raise EvaluationError(f"resamples={resamples}: a standard error takes two at least.")
    each: dict[str, NDArray[np.float64]] = {}
    total: NDArray[np.float64] | None = None
    for name, statistics in values.items():
        own = derive_seed(seed, "bootstrap", name)
        if weights is None:
            means = resampled_means(statistics, resamples, own)
        else:
            means = _weighted_means(statistics, weights[name], resamples, own)
        each[name] = means.std(axis=0, ddof=1)
        total = means if total is None else total + means
    assert total is not None
    return BootstrapErrors(each, (total / len(values)).std(axis=0, ddof=1))


def resampled_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Means of resamples of the rows, drawn with replacement: ``[resamples, statistics]``.

    values: ``[problems, statistics]``. A resample of m problems is m draws from them: how often
    each is drawn is multinomial.
    """
    if values.ndim != 2 or not len(values):
        raise EvaluationError(
            f"Values to resample have the shape [problems, statistics], not {list(values.shape)}."
        )
    problems = len(values)
    generator = np.random.Generator(np.random.Philox(key=seed))
    means = np.empty((resamples, values.shape[1]), dtype=np.float64)
    step = max(1, _MOST_COUNTS // problems)
    share = np.full(problems, 1 / problems)
    for start in range(0, resamples, step):
        part = means[start : start + step]
        counts = generator.multinomial(problems, share, size=len(part))
        part[:] = counts @ values / problems
    return means


def _weighted_means(
    values: NDArray[np.float64], weights: NDArray[np.float64], resamples: int, seed: int
) -> NDArray[np.float64]:
    """Means over repeats of weighted means over resampled problems: ``[resamples, statistics]``."""
    problems = len(values)
    each = weights.reshape(problems, -1, 1)
    sums = (values.reshape(problems, each.shape[1], -1) * each).reshape(problems, -1)
    both = resampled_means(np.hstack([sums, each[:, :, 0]]), resamples, seed)
    totals, weighed = both[:, : sums.shape[1]], both[:, sums.shape[1] :, None]
    return np.asarray((totals.reshape(len(both), each.shape[1], -1) / weighed).mean(axis=1))
