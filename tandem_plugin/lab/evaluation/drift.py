"""Drift: how far a senior's use of the vocabulary has moved from the junior's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.errors import EvaluationError, shown
from tandem_plugin.files import read_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.evaluation.checkpoint import pieces_of
from tandem_plugin.lab.evaluation.generation import read_generations
from tandem_plugin.lab.evaluation.results import (
    COUNTS,
    Summary,
    check_comparable,
    run_folder,
    solo_summary,
    write_json,
    write_summary,
)
from tandem_plugin.progress import waiting

__all__ = [
    "FREQUENT",
    "SMOOTHING",
    "TOP",
    "DriftRecovery",
    "DriftSettings",
    "Recovery",
    "drift_metrics",
    "drift_recovery",
    "kl_divergence",
    "log_ratio",
    "marginal",
    "mean_recovery",
    "most_displaced",
    "most_over_emitted",
    "read_counts",
    "recovery",
    "run_drift",
    "survival",
    "token_counts",
    "write_counts",
]

SMOOTHING = 0.5
"""Added to every token's count, seen or not, so that a token that one model never wrote has a
finite log-ratio. The paper does not say what it does; 1/2 is Jeffreys' prior."""

FREQUENT = 10
"""How often the junior must have written a token for it to count as frequent. The paper gives no
number."""

TOP = 500
"""Section 4.4: "the 500 tokens with the largest GRPO drift"."""

_LISTED = 100
"""How many over-emitted tokens a summary lists."""

_THRESHOLDS = 200
"""Points of a survival curve."""

_MOST_COUNTED = 2**53
"""Counts stay below it, so that they and their sums are exact as floats."""


# Numbers of counts.


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
    senior_counts, junior_counts = _pair(senior, junior)
    return np.asarray(
        np.log(marginal(senior_counts, smoothing)) - np.log(marginal(junior_counts, smoothing))
    )


def kl_divergence(senior: ArrayLike, junior: ArrayLike, smoothing: float = SMOOTHING) -> float:
    """KL(p_sen || p_jun) of the marginal distributions over the full vocabulary, in nats.

    Source: section 4.4 of the paper; Kullback (1997).
    """
    senior_counts, junior_counts = _pair(senior, junior)
    p, q = marginal(senior_counts, smoothing), marginal(junior_counts, smoothing)
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
    senior_counts, junior_counts = _pair(senior, junior)
    ratios = log_ratio(senior_counts, junior_counts, smoothing)
    eligible = np.flatnonzero((senior_counts >= least) & (ratios > 0))
    order = eligible[np.argsort(-ratios[eligible], kind="stable")][:count]
    return [(int(token), float(ratios[token])) for token in order]


def _pair(senior: ArrayLike, junior: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    senior_counts, junior_counts = np.asarray(senior), np.asarray(junior)
    if senior_counts.shape != junior_counts.shape or senior_counts.ndim != 1:
        raise EvaluationError(
            "TP850", ours_shape=list(senior_counts.shape), theirs_shape=list(junior_counts.shape)
        )
    return senior_counts, junior_counts


# Runs, and their files.


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """What drift depends on beside the responses."""

    smoothing: float = SMOOTHING
    frequent: int = FREQUENT

    def settings(self) -> dict[str, Any]:
        """For a result."""
        return asdict(self)


def run_drift(out: Path, senior: str, junior: str, chosen: DriftSettings) -> Path:
    """How far the senior's marginal token distribution is from the junior's; returns the summary.

    Both are estimated from solo runs with equal settings. Raises :class:`EvaluationError` where one
    is missing or they differ. Source: section 4.4 of the paper, appendix B.1 for the tokens.
    """
    senior_run, junior_run = solo_summary(out, senior), solo_summary(out, junior)
    check_comparable([senior_run, junior_run])
    pieces = pieces_of(senior_run.content["senior"].get("path", ""))
    if pieces_of(junior_run.content["senior"].get("path", "")) != pieces:
        raise EvaluationError("TP852", senior=senior, junior=junior)
    with waiting(f"count the tokens of {senior} and {junior}"):
        senior_counts = token_counts(_responses(senior_run), len(pieces))
        junior_counts = token_counts(_responses(junior_run), len(pieces))
    folder = run_folder(out, "drift", senior, junior)
    write_counts(folder, senior_counts, junior_counts)
    content = {
        "senior": senior_run.content["senior"],
        "junior": junior_run.content["senior"],
        "settings": {
            "solo": dict(senior_run.settings),
            "junior": junior_run.content["senior"].get("fingerprint"),
            **chosen.settings(),
        },
        "metrics": drift_metrics(senior_counts, junior_counts, pieces, chosen),
        "benchmarks": {},
    }
    return write_summary(folder, "drift", content)


def drift_metrics(
    senior: NDArray[np.int64],
    junior: NDArray[np.int64],
    pieces: Sequence[str],
    chosen: DriftSettings,
) -> dict[str, Any]:
    """The numbers of a summary, from both models' counts ``[vocabulary]``.

    Raises :class:`EvaluationError` where the junior wrote no token often enough.
    """
    ratios = log_ratio(senior, junior, chosen.smoothing)
    frequent = ratios[junior >= chosen.frequent]
    if not frequent.size:
        raise EvaluationError("TP853", frequent=chosen.frequent)
    thresholds = np.linspace(0, float(np.abs(frequent).max()) or 1.0, _THRESHOLDS)
    over = most_over_emitted(senior, junior, _LISTED, chosen.frequent, chosen.smoothing)
    return {
        "kl": kl_divergence(senior, junior, chosen.smoothing),
        "tokens": {"senior": int(senior.sum()), "junior": int(junior.sum())},
        "frequent_tokens": int(frequent.size),
        "survival": {
            "thresholds": thresholds.tolist(),
            "shares": survival(frequent, thresholds).tolist(),
        },
        "mean_absolute_log_ratio": float(np.abs(frequent).mean()),
        "over_emitted": [
            {
                "token": token,
                "piece": pieces[token],
                "log_ratio": ratio,
                "senior": int(senior[token]),
                "junior": int(junior[token]),
            }
            for token, ratio in over
        ],
    }


def write_counts(folder: Path, senior: NDArray[np.int64], junior: NDArray[np.int64]) -> None:
    """Write the counts ``[vocabulary]`` of both models: a row a token that was written."""
    content: dict[str, Any] = {"vocabulary": len(senior)}
    for name, counts in (("senior", senior), ("junior", junior)):
        content[name] = [[int(token), int(counts[token])] for token in counts.nonzero()[0]]
    write_json(folder / COUNTS, content)


def read_counts(summary: Summary) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The token counts of a drift run: the senior's and the junior's, ``[vocabulary]`` each.

    Raises :class:`EvaluationError` for a file that is missing or none.
    """
    path = summary.folder / COUNTS
    try:
        content = parse_json(read_file(path))
        size = content["vocabulary"]
        if type(size) is not int or not 0 < size <= MAX_TOKEN_ID + 1:
            raise ValueError(f"a vocabulary of {shown(size)} tokens")
        return _counts(content["senior"], size), _counts(content["junior"], size)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise EvaluationError("TP851", path=path, error=error) from error


def mean_recovery(baseline: Summary, other: Summary, top: int) -> DriftRecovery:
    """What a run recovers of a baseline's drift; of pooled runs the mean over all pairs.

    Raises :class:`EvaluationError` where counts are missing, or are not of one vocabulary.
    """
    found = [_recovery(*pair, top) for pair in product(baseline.each, other.each)]
    return DriftRecovery(*np.mean(found, axis=0).tolist())


def _recovery(baseline: Summary, other: Summary, top: int) -> DriftRecovery:
    base, junior = read_counts(baseline)
    counts, _ = read_counts(other)
    if base.shape != counts.shape:
        raise EvaluationError(
            "TP908",
            folder=baseline.folder,
            base=len(base),
            other_folder=other.folder,
            counts=len(counts),
        )
    frequent, smoothing = baseline.settings["frequent"], baseline.settings["smoothing"]
    return drift_recovery(junior, base, counts, top, frequent, smoothing)


def _counts(rows: Any, size: int) -> NDArray[np.int64]:
    counts = np.zeros(size, dtype=np.int64)
    for token, count in rows:
        if type(token) is not int or not 0 <= token < size:
            raise ValueError(f"the token {shown(token)} in a vocabulary of {size}")
        if type(count) is not int or not 0 <= count < _MOST_COUNTED:
            raise ValueError(f"{shown(count)} of the token {token}")
        counts[token] = count
    return counts


def _responses(solo: Summary) -> Iterator[list[int]]:
    samples = int(solo.settings["sampling"]["samples"])
    for name, problems in solo.problems.items():
        path = solo.folder / f"{name}.jsonl"
        for _, _, row in read_generations(path, len(problems), samples):
            yield row["response_ids"]
