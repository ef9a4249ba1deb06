"""Significance: bootstrap errors over problems, and t-tests over problems, seeds and units."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.seeds import derive_seed

Direction: TypeAlias = Literal["greater", "less"]

_LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))

RESAMPLES = 10_000
"""Section 4.5 of the paper, table of legibility."""

FEWEST_UNITS = 5
"""With fewer, p < 0.05 requires a distributional assumption: 0.5^4 > 0.05 (sign test)."""

_MOST_COUNTS = 2**23
"""Resampling counts held at a time: 64 MiB."""


def bootstrap_errors(
    values: Mapping[str, NDArray[np.float64]],
    resamples: int = RESAMPLES,
    weights: Mapping[str, NDArray[np.float64]] | None = None,
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """Standard errors over resamples of problems, stratified by benchmark: ``[statistics]`` each.

    Returns those of each benchmark's means, and those of the mean over benchmarks. values:
    per-problem statistics ``[problems, statistics]`` of each benchmark. weights: of each problem,
    ``[problems]``, where its mean is a weighted one, as over the positions of responses; with
    repeats, values are ``[problems, repeats, statistics]``, weights ``[problems, repeats]``, and a
    benchmark's number is the mean over the repeats' weighted means. A benchmark's resamples
    depend only on its name. Source: sections 4.1 and 4.5 of the paper; Efron (1979).
    """
    each: dict[str, NDArray[np.float64]] = {}
    total: NDArray[np.float64] | float = 0.0
    for name, statistics in values.items():
        own = derive_seed(0, "bootstrap", name)
        if weights is None:
            means = _resampled_means(statistics, resamples, own)
        else:
            means = _weighted_means(statistics, weights[name], resamples, own)
        each[name] = means.std(axis=0, ddof=1)
        total = total + means
    return each, np.std(total / len(values), axis=0, ddof=1)


def _resampled_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Means of resamples of the rows, drawn with replacement: ``[resamples, statistics]``.

    values: ``[problems, statistics]``. A resample of m problems is m draws from them, so the counts
    are multinomial.
    """
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
    both = _resampled_means(np.hstack([sums, each[:, :, 0]]), resamples, seed)
    totals, weighed = both[:, : sums.shape[1]], both[:, sums.shape[1] :, None]
    return np.asarray((totals.reshape(len(both), each.shape[1], -1) / weighed).mean(axis=1))


@dataclass(frozen=True, slots=True)
class TTest:
    """The result of a one-sided t-test."""

    difference: float
    """The mean of the claimed side minus that of the other."""
    t: float
    """NaN if nothing differs; infinite if everything differs by the same amount."""
    degrees: float
    """Degrees of freedom; NaN if seeds do not differ within their method."""
    p: float


def stars(p: float) -> str:
    """``*`` for p < 0.05, ``**`` for p < 0.01, ``***`` for p < 0.001, as in section 5.3."""
    return next((marks for level, marks in _LEVELS if p < level), "")


def holm(values: Sequence[float]) -> list[float]:
    """The p values of several tests, corrected for their number; NaN stays, and counts as none.

    With them, the probability that any test finds what is not there is at most the level. Source:
    Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    order = [i for i in np.argsort(values) if not np.isnan(values[i])]
    corrected, largest = [float("nan")] * len(values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * values[i]))
        corrected[i] = largest
    return corrected


def paired_test(claimed: ArrayLike, other: ArrayLike, direction: Direction) -> TTest:
    """Whether ``claimed`` is greater (or less) than ``other``, problem by problem.

    claimed, other: float ``[problems]``, pooled over benchmarks, in the same order. t and p are NaN
    if no problem differs, and everything is NaN for fewer than two problems. Source: section 5.3 of
    the paper; ``scipy.stats.ttest_rel``.
    """
    from scipy import stats

    differences = np.asarray(claimed, np.float64) - np.asarray(other, np.float64)
    if len(differences) < 2:
        return TTest(*[float("nan")] * 4)
    if np.ptp(differences) == 0:
        return _without_spread(float(differences[0]), len(differences) - 1, direction)
    found = stats.ttest_1samp(differences, 0.0, alternative=direction)
    mean = float(differences.mean())
    return TTest(mean, float(found.statistic), len(differences) - 1, float(found.pvalue))


def seed_test(claimed: ArrayLike, other: ArrayLike, direction: Direction) -> TTest:
    """Whether another seed of one method would be greater (or less) than one of the other.

    claimed, other: one number per training seed, ``[seeds]`` each, at least two; they are not
    paired, and may have different variances. Source: Welch (1947); ``scipy.stats.ttest_ind``.
    """
    from scipy import stats

    ours, theirs = np.asarray(claimed, np.float64), np.asarray(other, np.float64)
    if np.ptp(ours) == 0 and np.ptp(theirs) == 0:
        return _without_spread(float(ours[0] - theirs[0]), float("nan"), direction)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of SciPy, for equal runs of one method
        found = stats.ttest_ind(ours, theirs, equal_var=False, alternative=direction)
    difference = float(ours.mean() - theirs.mean())
    return TTest(difference, float(found.statistic), float(found.df), float(found.pvalue))


def unit_means(values: ArrayLike, units: Sequence[Hashable]) -> NDArray[np.float64]:
    """The mean of each unit's runs, by units in the order of their first run: ``[units]``.

    values: one number per run, ``[runs]``. units: the unit of each run, such as the model that it
    started from.
    """
    numbers = np.asarray(values, np.float64)
    places = {unit: [i for i, one in enumerate(units) if one == unit] for unit in units}
    return np.array([numbers[of_unit].mean() for of_unit in places.values()])


def unit_error(means: ArrayLike) -> float:
    """The standard error of the mean of :func:`unit_means` over units drawn at random.

    With the same number of runs per unit it equals that of the mixed model y = mean + unit + run,
    sqrt(MS between units / runs). NaN for one unit. Source: Searle, Casella and McCulloch,
    *Variance Components* (1992), chapter 3.
    """
    each = np.asarray(means, np.float64)
    return float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else float("nan")


def unit_test(differences: ArrayLike, direction: Direction) -> TTest:
    """Whether the difference would be greater (or less) than 0 for another unit, such as a start.

    differences: the methods' difference in each unit, ``[units]``, from :func:`unit_means`. Runs of
    one unit resemble each other, so units are counted, not runs. If all units differ by the same
    amount there is no spread to test with: t and p are NaN.
    """
    each = np.asarray(differences, np.float64)
    if len(each) > 1 and np.ptp(each) <= 1e-12 * np.abs(each).max():
        return TTest(float(each[0]), float("nan"), len(each) - 1, float("nan"))
    return paired_test(each, np.zeros_like(each), direction)


def _without_spread(difference: float, degrees: float, direction: Direction) -> TTest:
    """The result for zero spread, where rounding must not produce a finite t."""
    if difference == 0:
        return TTest(0.0, float("nan"), degrees, float("nan"))
    holds = (difference > 0) == (direction == "greater")
    return TTest(difference, float(np.copysign(np.inf, difference)), degrees, 1.0 - holds)
