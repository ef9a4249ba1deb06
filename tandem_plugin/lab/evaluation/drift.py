"""Drift: how far a senior's use of the vocabulary has moved from the junior's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.errors import EvaluationError

__all__ = [
    "FREQUENT",
    "SMOOTHING",
    "TOP",
    "DriftRecovery",
    "Recovery",
    "drift_recovery",
    "kl_divergence",
    "log_ratio",
    "marginal",
    "most_displaced",
    "most_over_emitted",
    "recovery",
    "survival",
    "token_counts",
]

SMOOTHING = 0.5
"""Added to every token's count, seen or not, so that a token that one model never wrote has a
finite log-ratio. The paper does not say what it does; 1/2 is Jeffreys' prior."""

FREQUENT = 10
"""How often the junior must have written a token for it to count as frequent. The paper gives no
number."""

TOP = 500
"""Section 4.4: "the 500 tokens with the largest GRPO drift"."""


def token_counts(responses: Iterable[Sequence[int]], vocabulary: int) -> NDArray[np.int64]:
    """How often each token was written: int64 ``[vocabulary]``.

    Raises :class:`EvaluationError` for a token id that the vocabulary lacks.
    """
    counts = np.zeros(vocabulary, dtype=np.int64)
    for response in responses:
        if not len(response):
            continue
        ids = np.asarray(response, dtype=np.int64)
        if ids.min() < 0 or ids.max() >= vocabulary:
            raise EvaluationError(
                "TP844",
                token_id=int(ids.max() if ids.min() >= 0 else ids.min()),
                vocabulary=vocabulary,
            )
        counts += np.bincount(ids, minlength=vocabulary)
    return counts


def marginal(counts: ArrayLike, smoothing: float = SMOOTHING) -> NDArray[np.float64]:
    """The marginal token distribution: float64 ``[vocabulary]`` with the sum 1.

    p(t) = (count(t) + smoothing) / (sum of counts + smoothing * vocabulary). Raises
    :class:`EvaluationError` for negative smoothing, or none where a token was never written.
    Source: section 4.4 of the paper.
    """
    found = np.asarray(counts, dtype=np.float64)
    if found.ndim != 1 or not found.size or found.min() < 0:
        raise EvaluationError("TP845")
    if smoothing < 0 or (smoothing == 0 and found.min() == 0):
        raise EvaluationError("TP846", smoothing=smoothing)
    smoothed = found + smoothing
    return np.asarray(smoothed / smoothed.sum())


def log_ratio(
    senior: ArrayLike, junior: ArrayLike, smoothing: float = SMOOTHING
) -> NDArray[np.float64]:
    """The signed log-ratio log(p_sen(t) / p_jun(t)) of every token, in nats.

    senior, junior: counts ``[vocabulary]``. Positive where the senior over-uses a token. Source:
    section 4.4 of the paper.
    """
    ours, theirs = _pair(senior, junior)
    return np.asarray(np.log(marginal(ours, smoothing)) - np.log(marginal(theirs, smoothing)))


def kl_divergence(senior: ArrayLike, junior: ArrayLike, smoothing: float = SMOOTHING) -> float:
    """KL(p_sen || p_jun) of the marginal distributions over the full vocabulary, in nats.

    Source: section 4.4 of the paper; Kullback (1997).
    """
    ours, theirs = _pair(senior, junior)
    p, q = marginal(ours, smoothing), marginal(theirs, smoothing)
    return float(np.sum(p * (np.log(p) - np.log(q))))


def survival(ratios: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """The share of tokens whose absolute log-ratio is above each threshold.

    ratios: of the tokens that count, such as those frequent in the junior's outputs. Raises
    :class:`EvaluationError` where there are none. Source: section 4.4 of the paper, left panel of
    its figure on drift.
    """
    sizes = np.sort(np.abs(np.asarray(ratios, dtype=np.float64)))
    if not sizes.size:
        raise EvaluationError("TP847")
    below = np.searchsorted(sizes, np.asarray(thresholds, dtype=np.float64), side="right")
    return np.asarray(1 - below / sizes.size)


def most_displaced(ratios: ArrayLike, count: int = TOP) -> NDArray[np.int64]:
    """The ids of the most displaced tokens, most displaced first; ties by token id.

    ratios: a baseline's log-ratios over the whole vocabulary. By their absolute value: the paper's
    footnote has the value itself, but its text ("under-emitting what GRPO over-emits and vice
    versa") speaks of both signs. Source: section 4.4 of the paper.
    """
    values = np.asarray(ratios, dtype=np.float64)
    if count < 1:
        raise EvaluationError("TP848", count=count)
    order = np.argsort(-np.abs(values), kind="stable")
    return np.asarray(order[:count], dtype=np.int64)


class Recovery(NamedTuple):
    """How another model moves the tokens that a baseline displaced."""

    share_moved_back: float
    """Share of the tokens whose shift opposes their displacement."""
    spearman: float
    """Rank correlation of shift and displacement; not a number where either is constant."""


def recovery(displacement: ArrayLike, shift: ArrayLike) -> Recovery:
    """Share moved back and Spearman's rho over some tokens; of fewer than three, not a number.

    displacement: the baseline's log-ratios to the junior; shift: the other model's to the baseline,
    both ``[tokens]``. A shift or displacement of zero is not moved back. Raises
    :class:`EvaluationError` for other shapes. Source: section 4.4 of the paper, right panel of its
    figure on drift; ``scipy.stats.spearmanr``.
    """
    from scipy import stats

    x, y = np.asarray(displacement, np.float64), np.asarray(shift, np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise EvaluationError("TP907", x_shape=list(x.shape), y_shape=list(y.shape))
    if len(x) < 3:
        return Recovery(float("nan"), float("nan"))
    moved = float(np.mean(x * y < 0))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return Recovery(moved, float("nan"))
    return Recovery(moved, float(stats.spearmanr(x, y).statistic))


class DriftRecovery(NamedTuple):
    """What a model recovers of a baseline's drift; not a number where it cannot be told."""

    moved_back: float
    """Share of the baseline's most displaced tokens whose shift opposes their displacement."""
    spearman_top: float
    """Spearman's rho of shift and displacement over them."""
    spearman_frequent: float
    """The same over the tokens that are frequent in the junior's outputs."""


def drift_recovery(
    junior: ArrayLike,
    baseline: ArrayLike,
    other: ArrayLike,
    top: int = TOP,
    frequent: int = FREQUENT,
    smoothing: float = SMOOTHING,
) -> DriftRecovery:
    """What the other model recovers of the baseline's drift from the junior.

    junior, baseline, other: counts ``[vocabulary]``. Raises :class:`EvaluationError` for counts of
    different vocabularies. Source: section 4.4 of the paper.
    """
    displacement = log_ratio(baseline, junior, smoothing)
    shift = log_ratio(other, baseline, smoothing)
    most = most_displaced(displacement, top)
    often = np.flatnonzero(np.asarray(junior) >= frequent)
    of_top = recovery(displacement[most], shift[most])
    of_frequent = recovery(displacement[often], shift[often])
    return DriftRecovery(of_top.share_moved_back, of_top.spearman, of_frequent.spearman)


def most_over_emitted(
    senior: ArrayLike,
    junior: ArrayLike,
    count: int = 30,
    least: int = FREQUENT,
    smoothing: float = SMOOTHING,
) -> list[tuple[int, float]]:
    """(token id, log-ratio) of the tokens that the senior over-emits most, in that order.

    least: how often the senior must have written a token. Source: appendix B.1 of the paper
    ("Qualitative Analysis of Over-emitted Tokens").
    """
    ours, theirs = _pair(senior, junior)
    ratios = log_ratio(ours, theirs, smoothing)
    eligible = np.flatnonzero((ours >= least) & (ratios > 0))
    order = eligible[np.argsort(-ratios[eligible], kind="stable")][:count]
    return [(int(token), float(ratios[token])) for token in order]


def _pair(senior: ArrayLike, junior: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ours, theirs = np.asarray(senior), np.asarray(junior)
    if ours.shape != theirs.shape or ours.ndim != 1:
        raise EvaluationError("TP850", ours_shape=list(ours.shape), theirs_shape=list(theirs.shape))
    return ours, theirs
