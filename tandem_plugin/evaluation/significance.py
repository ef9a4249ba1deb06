"""Paired one-sided t-tests on per-problem statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tandem_plugin.errors import EvaluationError

__all__ = ["PairedTest", "paired_test", "stars"]

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


def stars(p: float) -> str:
    """``*`` for p < 0.05, ``**`` for p < 0.01, ``***`` for p < 0.001, else nothing.

    Source: section 5.3 of the paper ("Statistical significance of TRL gains").
    """
    return next((marks for level, marks in _LEVELS if p < level), "")


def paired_test(
    claimed: ArrayLike, other: ArrayLike, direction: Literal["greater", "less"]
) -> PairedTest:
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
