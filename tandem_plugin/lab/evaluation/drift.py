"""Drift: how far a senior's use of the vocabulary has moved from the junior's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import parse_json, read_file
from tandem_plugin.lab.evaluation.generation import read_generations
from tandem_plugin.lab.evaluation.inputs import pieces_of
from tandem_plugin.lab.evaluation.results import (
    Summary,
    check_comparable,
    run_folder,
    solo_summary,
    write_json,
    write_summary,
)
from tandem_plugin.progress import waiting

SMOOTHING = 0.5
"""Added to every token's count, so that a token that one model never wrote has a finite log-ratio.
The paper gives no value; 1/2 is Jeffreys' prior."""

FREQUENT = 10
"""How often the junior must have written a token for it to count as frequent. The paper gives no
number."""

TOP = 500
"""Section 4.4: "the 500 tokens with the largest GRPO drift"."""

_COUNTS = "counts.json"
_THRESHOLDS = 200
"""Points of a survival curve."""

_TokenCount = tuple[
    Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)],
    Annotated[int, Field(ge=0, lt=2**53)],  # exact as a float
]


# Statistics of counts.


def token_counts(responses: Iterable[Sequence[int]], vocabulary: int) -> NDArray[np.int64]:
    """How often each token was written: int64 ``[vocabulary]``.

    Raises :class:`EvaluationError` for a token id that the vocabulary lacks.
    """
    counts = np.zeros(vocabulary, dtype=np.int64)
    for response in responses:
        ids = np.asarray(response, dtype=np.int64)
        outside = ids[(ids < 0) | (ids >= vocabulary)]
        if outside.size:
            raise EvaluationError("TP844", token_id=int(outside[0]), vocabulary=vocabulary)
        counts += np.bincount(ids, minlength=vocabulary)
    return counts


def marginal(counts: ArrayLike, smoothing: float = SMOOTHING) -> NDArray[np.float64]:
    """The marginal token distribution: float64 ``[vocabulary]`` with the sum 1.

    p(t) = (count(t) + smoothing) / (sum of counts + smoothing * vocabulary). Source: section 4.4
    of the paper.
    """
    smoothed = np.asarray(counts, dtype=np.float64) + smoothing
    return np.asarray(smoothed / smoothed.sum())


def log_ratio(
    senior: ArrayLike, junior: ArrayLike, smoothing: float = SMOOTHING
) -> NDArray[np.float64]:
    """The signed log-ratio log(p_sen(t) / p_jun(t)) of every token, in nats.

    senior, junior: counts ``[vocabulary]``. Positive if the senior over-uses a token. Source:
    section 4.4 of the paper.
    """
    return np.asarray(np.log(marginal(senior, smoothing)) - np.log(marginal(junior, smoothing)))


def kl_divergence(senior: ArrayLike, junior: ArrayLike, smoothing: float = SMOOTHING) -> float:
    """KL(p_sen || p_jun) of the marginal distributions over the full vocabulary, in nats.

    Source: section 4.4 of the paper; Kullback (1997).
    """
    return float(np.sum(marginal(senior, smoothing) * log_ratio(senior, junior, smoothing)))


def survival(ratios: ArrayLike, thresholds: ArrayLike) -> NDArray[np.float64]:
    """The share of tokens whose absolute log-ratio is above each threshold.

    ratios: of the tokens to consider, at least one; such as those frequent in the junior's outputs.
    Source: section 4.4 of the paper, left panel of its figure on drift.
    """
    sizes = np.sort(np.abs(np.asarray(ratios, dtype=np.float64)))
    below = np.searchsorted(sizes, np.asarray(thresholds, dtype=np.float64), side="right")
    return np.asarray(1 - below / sizes.size)


def most_displaced(ratios: ArrayLike, count: int = TOP) -> NDArray[np.int64]:
    """The ids of the most displaced tokens, most displaced first; ties by token id.

    ratios: a baseline's log-ratios over the whole vocabulary. Sorted by absolute value: the paper's
    footnote uses the signed value, but its text ("under-emitting what GRPO over-emits and vice
    versa") refers to both signs. Source: section 4.4 of the paper.
    """
    values = np.asarray(ratios, dtype=np.float64)
    order = np.argsort(-np.abs(values), kind="stable")
    return np.asarray(order[:count], dtype=np.int64)


def recovery(displacement: ArrayLike, shift: ArrayLike) -> tuple[float, float]:
    """Share of tokens moved back, and Spearman's rho; NaN for fewer than three tokens.

    displacement: the baseline's log-ratios to the junior; shift: the other model's to the baseline,
    both ``[tokens]``. A token is moved back if its shift opposes its displacement; zero does not.
    rho is NaN if either is constant. Source: section 4.4 of the paper, right panel of its figure on
    drift; ``scipy.stats.spearmanr``.
    """
    from scipy import stats

    x, y = np.asarray(displacement, np.float64), np.asarray(shift, np.float64)
    if len(x) < 3:
        return float("nan"), float("nan")
    moved = float(np.mean(x * y < 0))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return moved, float("nan")
    return moved, float(stats.spearmanr(x, y).statistic)


# Runs, and their files.


def run_drift(out: Path, senior: str, junior: str, frequent: int = FREQUENT) -> Path:
    """Measure the drift of the senior's marginal token distribution; returns the summary.

    Both distributions are estimated from solo runs with equal settings. Raises
    :class:`EvaluationError` if one is missing or the settings differ. Source: section 4.4 of the
    paper.
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
            "smoothing": SMOOTHING,
            "frequent": frequent,
        },
        "metrics": drift_metrics(senior_counts, junior_counts, frequent),
        "benchmarks": {},
    }
    return write_summary(folder, "drift", content)


def _responses(solo: Summary) -> Iterator[list[int]]:
    samples = int(solo.settings["sampling"]["samples"])
    for name, problems in solo.problems.items():
        path = solo.folder / f"{name}.jsonl"
        for _, _, row in read_generations(path, len(problems), samples):
            yield row["response_ids"]


def drift_metrics(
    senior: NDArray[np.int64], junior: NDArray[np.int64], frequent: int = FREQUENT
) -> dict[str, Any]:
    """The numbers of a summary, from both models' counts ``[vocabulary]``.

    frequent: how often the junior must have written a token for it to count as frequent. Raises
    :class:`EvaluationError` if it wrote no token that often.
    """
    ratios = log_ratio(senior, junior)[junior >= frequent]
    if not ratios.size:
        raise EvaluationError("TP853", frequent=frequent)
    thresholds = np.linspace(0, float(np.abs(ratios).max()) or 1.0, _THRESHOLDS)
    return {
        "kl": kl_divergence(senior, junior),
        "tokens": {"senior": int(senior.sum()), "junior": int(junior.sum())},
        "frequent_tokens": int(ratios.size),
        "survival": {
            "thresholds": thresholds.tolist(),
            "shares": survival(ratios, thresholds).tolist(),
        },
        "mean_absolute_log_ratio": float(np.abs(ratios).mean()),
    }


def write_counts(folder: Path, senior: NDArray[np.int64], junior: NDArray[np.int64]) -> None:
    """Write the counts ``[vocabulary]`` of both models: one row per written token."""
    content: dict[str, Any] = {"vocabulary": len(senior)}
    for name, counts in (("senior", senior), ("junior", junior)):
        content[name] = [[int(token), int(counts[token])] for token in counts.nonzero()[0]]
    write_json(folder / _COUNTS, content)


class _Counts(BaseModel):
    """The file of a drift run's counts."""

    model_config = ConfigDict(strict=True)

    vocabulary: Annotated[int, Field(ge=1, le=MAX_TOKEN_ID + 1)]
    senior: list[Annotated[_TokenCount, Field(strict=False)]]
    junior: list[Annotated[_TokenCount, Field(strict=False)]]


def read_counts(summary: Summary) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The token counts of a drift run: the senior's and the junior's, ``[vocabulary]`` each.

    Raises :class:`EvaluationError` for a file that is missing or damaged.
    """
    path = summary.folder / _COUNTS
    try:
        found = _Counts.model_validate(parse_json(read_file(path)))
        return _dense(found.senior, found.vocabulary), _dense(found.junior, found.vocabulary)
    except (OSError, ValueError, IndexError) as error:
        raise EvaluationError("TP851", path=path) from error


def _dense(rows: list[Any], size: int) -> NDArray[np.int64]:
    counts = np.zeros(size, dtype=np.int64)
    for token, count in rows:
        counts[token] = count
    return counts


def mean_recovery(baseline: Summary, other: Summary) -> tuple[float, float, float]:
    """A run's recovery of a baseline's drift; for pooled runs, the mean over all pairs.

    Both results of :func:`recovery` over the baseline's most displaced tokens, and Spearman's rho
    over those that are frequent in the junior's outputs. Raises :class:`EvaluationError` if counts
    are missing. Source: section 4.4 of the paper.
    """
    frequent, smoothing = baseline.settings["frequent"], baseline.settings["smoothing"]
    found = []
    for first, second in product(map(read_counts, baseline.each), map(read_counts, other.each)):
        drifted, junior = first
        displacement = log_ratio(drifted, junior, smoothing)
        shift = log_ratio(second[0], drifted, smoothing)
        most, often = most_displaced(displacement), junior >= frequent
        over_most = recovery(displacement[most], shift[most])
        found.append([*over_most, recovery(displacement[often], shift[often])[1]])
    moved_back, of_most, of_frequent = np.mean(found, axis=0).tolist()
    return moved_back, of_most, of_frequent
