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
    errors: dict[str, NDArray[np.float64]] = {}
    total: NDArray[np.float64] | float = 0.0
    for name, statistics in values.items():
        seed = derive_seed(0, "bootstrap", name)
        if weights is None:
            means = _resampled_means(statistics, resamples, seed)
        else:
            means = _weighted_means(statistics, weights[name], resamples, seed)
        errors[name] = means.std(axis=0, ddof=1)
        total = total + means
    return errors, np.std(total / len(values), axis=0, ddof=1)


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
    columns = weights.reshape(problems, -1, 1)
    sums = (values.reshape(problems, columns.shape[1], -1) * columns).reshape(problems, -1)
    resampled = _resampled_means(np.hstack([sums, columns[:, :, 0]]), resamples, seed)
    totals, weighed = resampled[:, : sums.shape[1]], resampled[:, sums.shape[1] :, None]
    return np.asarray((totals.reshape(len(resampled), columns.shape[1], -1) / weighed).mean(axis=1))


@dataclass(frozen=True, slots=True)
class TTest:
    """The result of a one-sided t-test."""

    difference: float
    """The mean of the claimed side minus the mean of the other."""
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


def paired_test(claimed: ArrayLike, baseline: ArrayLike, direction: Direction) -> TTest:
    """Whether ``claimed`` is greater (or less) than ``baseline``, problem by problem.

    claimed, baseline: float ``[problems]``, pooled over benchmarks, in the same order. t and p are
    NaN if no problem differs, and everything is NaN for fewer than two problems. Source: section
    5.3 of the paper; ``scipy.stats.ttest_rel``.
    """
    from scipy import stats

    differences = np.asarray(claimed, np.float64) - np.asarray(baseline, np.float64)
    if len(differences) < 2:
        return TTest(*[float("nan")] * 4)
    if np.ptp(differences) == 0:
        return _without_spread(float(differences[0]), len(differences) - 1, direction)
    result = stats.ttest_1samp(differences, 0.0, alternative=direction)
    mean = float(differences.mean())
    return TTest(mean, float(result.statistic), len(differences) - 1, float(result.pvalue))


def seed_test(claimed: ArrayLike, baseline: ArrayLike, direction: Direction) -> TTest:
    """Whether a new seed of one method would be greater (or less) than one of the other.

    claimed, baseline: one number per training seed, ``[seeds]`` each, at least two; they are not
    paired, and may have different variances. Source: Welch (1947); ``scipy.stats.ttest_ind``.
    """
    from scipy import stats

    ours, base = np.asarray(claimed, np.float64), np.asarray(baseline, np.float64)
    if np.ptp(ours) == 0 and np.ptp(base) == 0:
        return _without_spread(float(ours[0] - base[0]), float("nan"), direction)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of SciPy, for equal runs of one method
        result = stats.ttest_ind(ours, base, equal_var=False, alternative=direction)
    difference = float(ours.mean() - base.mean())
    return TTest(difference, float(result.statistic), float(result.df), float(result.pvalue))


def unit_means(values: ArrayLike, units: Sequence[Hashable]) -> NDArray[np.float64]:
    """The mean of each unit's runs, by units in the order of their first run: ``[units]``.

    values: one number per run, ``[runs]``. units: the unit of each run, such as the model that it
    started from.
    """
    numbers = np.asarray(values, np.float64)
    places = {unit: [i for i, run_unit in enumerate(units) if run_unit == unit] for unit in units}
    return np.array([numbers[of_unit].mean() for of_unit in places.values()])


def unit_error(means: ArrayLike) -> float:
    """The standard error of the mean of :func:`unit_means` over units drawn at random.

    With the same number of runs per unit it equals the error of the mixed model
    y = mean + unit + run, sqrt(MS between units / runs). NaN for one unit. Source: Searle, Casella
    and McCulloch, *Variance Components* (1992), chapter 3.
    """
    values = np.asarray(means, np.float64)
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def unit_test(differences: ArrayLike, direction: Direction) -> TTest:
    """Whether the difference would be greater (or less) than 0 for a new unit, such as a start.

    differences: the methods' difference in each unit, ``[units]``, from :func:`unit_means`. Runs of
    one unit resemble each other, so units are counted, not runs. If all units differ by the same
    amount there is no spread to test with: t and p are NaN.
    """
    values = np.asarray(differences, np.float64)
    if len(values) > 1 and np.ptp(values) <= 1e-12 * np.abs(values).max():
        return TTest(float(values[0]), float("nan"), len(values) - 1, float("nan"))
    return paired_test(values, np.zeros_like(values), direction)


def _without_spread(difference: float, degrees: float, direction: Direction) -> TTest:
    """The result for zero spread, where rounding must not produce a finite t."""
    if difference == 0:
        return TTest(0.0, float("nan"), degrees, float("nan"))
    holds = (difference > 0) == (direction == "greater")
    return TTest(difference, float(np.copysign(np.inf, difference)), degrees, 1.0 - holds)
