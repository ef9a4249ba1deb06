"""One-sided t-tests: paired over problems, and over training seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tandem_plugin.errors import EvaluationError

__all__ = ["Direction", "PairedTest", "SeedTest", "paired_test", "seed_test", "stars"]

Direction: TypeAlias = Literal["greater", "less"]

_LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


@dataclass(frozen=True, slots=True)
class PairedTest:
    """What a paired one-sided t-test says."""

    difference: float
    """Mean over problems of the claimed one minus the other."""
    t: float
    """Not a number where no problem differs; infinite where all differ by the same."""
    p: float
    problems: int

    @property
    def stars(self) -> str:
        """The level of significance, as the paper marks it."""
        return stars(self.p)


@dataclass(frozen=True, slots=True)
class SeedTest:
    """What Welch's one-sided t-test over training seeds says."""

    difference: float
    """Mean over seeds of the claimed method minus that of the other."""
    t: float
    """Not a number where all seeds of both are equal; infinite where each method's are."""
    degrees: float
    """Welch's degrees of freedom; not a number where no seed differs within its method."""
    p: float

    @property
    def stars(self) -> str:
        """The level of significance, as the paper marks it."""
        return stars(self.p)


def stars(p: float) -> str:
    """``*`` for p < 0.05, ``**`` for p < 0.01, ``***`` for p < 0.001, else nothing.

    Source: section 5.3 of the paper ("Statistical significance of TRL gains").
    """
    return next((marks for level, marks in _LEVELS if p < level), "")


def paired_test(claimed: ArrayLike, other: ArrayLike, direction: Direction) -> PairedTest:
    """Whether ``claimed`` is greater (or less) than ``other``, problem by problem.

    claimed, other: float ``[problems]``, pooled over benchmarks, in the same order. Raises
    :class:`EvaluationError` for other shapes, values that are not finite, or fewer than two
    problems. Where no problem differs there is nothing to test: t and p are not a number. Source:
    section 5.3 of the paper; ``scipy.stats.ttest_rel``.
    """
    from scipy import stats

    ours, theirs = np.asarray(claimed, np.float64), np.asarray(other, np.float64)
    if ours.shape != theirs.shape or ours.ndim != 1 or len(ours) < 2:
        raise EvaluationError(
            f"A paired test takes one number a problem from each side, of two problems at least; "
            f"got {list(ours.shape)} and {list(theirs.shape)}."
        )
    differences = ours - theirs
    if not np.isfinite(differences).all():
        raise EvaluationError("A paired test takes finite numbers only.")
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        # A spread of zero: rounding must not make a finite t of it.
        first = float(differences[0])
        if first == 0:
            return PairedTest(0.0, float("nan"), float("nan"), len(ours))
        holds = (first > 0) == (direction == "greater")
        return PairedTest(first, float(np.copysign(np.inf, first)), 1.0 - holds, len(ours))
    found = stats.ttest_1samp(differences, 0.0, alternative=direction)
    return PairedTest(mean, float(found.statistic), float(found.pvalue), len(ours))


def seed_test(claimed: ArrayLike, other: ArrayLike, direction: Direction) -> SeedTest:
    """Whether another seed of one method would be greater (or less) than one of the other.

    claimed, other: one number a training seed, ``[seeds]`` each, of two seeds at least; they are
    not paired, and may vary by different amounts. Raises :class:`EvaluationError` for fewer, or
    values that are not finite. Source: Welch (1947).
    """
    from scipy import stats

    ours, theirs = np.asarray(claimed, np.float64), np.asarray(other, np.float64)
    if ours.ndim != 1 or theirs.ndim != 1 or min(len(ours), len(theirs)) < 2:
        raise EvaluationError(
            f"A test over seeds takes one number a seed, of two seeds at least; got "
            f"{list(ours.shape)} and {list(theirs.shape)}."
        )
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise EvaluationError("A test over seeds takes finite numbers only.")
    difference = float(ours.mean() - theirs.mean())
    if np.ptp(ours) == 0 and np.ptp(theirs) == 0:
        # Spreads of zero: rounding must not make a finite t of them.
        apart = float(ours[0] - theirs[0])
        if apart == 0:
            return SeedTest(0.0, float("nan"), float("nan"), float("nan"))
        holds = (apart > 0) == (direction == "greater")
        return SeedTest(apart, float(np.copysign(np.inf, apart)), float("nan"), 1.0 - holds)
    parts = np.array([ours.var(ddof=1) / len(ours), theirs.var(ddof=1) / len(theirs)])
    t = difference / float(np.sqrt(parts.sum()))
    each = parts**2 / np.array([len(ours) - 1, len(theirs) - 1])
    degrees = float(parts.sum() ** 2 / each.sum())
    p = float(stats.t.sf(t if direction == "greater" else -t, degrees))
    return SeedTest(difference, t, degrees, p)
