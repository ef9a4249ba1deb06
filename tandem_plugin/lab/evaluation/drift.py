"""Drift: how far a senior's use of the vocabulary has moved from the junior's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID, Vocabulary
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import read_json
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

_LISTED = 20
"""Over-emitted tokens in a summary. The paper's figure has no number of them."""

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
            raise EvaluationError(
                "scoring-token-outside-vocabulary", token_id=int(outside[0]), vocabulary=vocabulary
            )
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


def over_emitted(senior: Counts, junior: Counts, frequent: int) -> list[dict[str, Any]]:
    """The tokens with the largest log-ratios, largest first, with both models' counts.

    Of those alone that the senior wrote at least ``frequent`` times: the ratio of rare ones is
    noise. Source: appendix B.1 of the paper.
    """
    ratios = log_ratio(senior.whole, junior.whole)
    often = np.flatnonzero((senior.whole >= frequent) & (ratios > 0))
    chosen = often[np.argsort(-ratios[often], kind="stable")][:_LISTED]
    return [
        {
            "token": int(token),
            "log_ratio": float(ratios[token]),
            "senior": int(senior.whole[token]),
            "junior": int(junior.whole[token]),
        }
        for token in chosen
    ]


def over_emitted_by_noise(junior: Counts, frequent: int) -> float | None:
    """The largest log-ratio between the junior's halves, of tokens that one wrote often enough.

    None without halves.
    """
    if junior.halves is None:
        return None
    ratios = log_ratio(*junior.halves)
    either = np.maximum(*junior.halves) >= frequent
    return float(np.abs(ratios[either]).max(initial=0.0))


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


@dataclass(frozen=True, slots=True)
class Counts:
    """How often one model wrote each token, int64 ``[vocabulary]``, in all responses and in half.

    The halves are two samples of one distribution over the same problems: what they differ by is
    noise, and the null of every measure here.
    """

    whole: NDArray[np.int64]
    half: NDArray[np.int64] | None
    """Every second sample of each problem; None if it has one, or an odd number, of them."""

    @property
    def halves(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Both halves."""
        return None if self.half is None else (self.half, self.whole - self.half)


@dataclass(frozen=True, slots=True)
class Recovery:
    """One model's recovery of a baseline's drift: each a share moved back, rho, rho of frequent."""

    measured: tuple[float, float, float]
    """As the paper measures it. Displacement and shift share the baseline's noise with opposite
    signs, so it is large for any two models."""
    null: tuple[float, float, float] | None
    """The same of a second sample of the baseline, which recovers nothing: of its halves."""
    crossed: tuple[float, float, float] | None
    """Tokens chosen and displaced by one half of the baseline, shift from its other half to half of
    the other model: 1/2 and 0 for the baseline itself, since a shift of 0 counts 1/2. A model that
    recovers nothing still gives more if its drift differs from the baseline's."""


def recovered(baseline: Counts, junior: Counts, senior: Counts, frequent: int) -> Recovery:
    """How far ``senior`` moves the baseline's displacement from the junior back, with its null.

    frequent: how often the junior must have written a token for it to count as frequent.
    """
    often = junior.whole >= frequent

    def one(first: Any, second: Any, to: Any, ties: float = 0.0) -> tuple[float, float, float]:
        """Displacement in ``first``, and the shift from ``second`` to ``to``."""
        displacement, shift = log_ratio(first, junior.whole), log_ratio(to, second)
        most = most_displaced(displacement)
        moved, rho = recovery(displacement[most], shift[most])
        moved += ties * float(np.mean(displacement[most] * shift[most] == 0))
        return moved, rho, recovery(displacement[often], shift[often])[1]

    measured = one(baseline.whole, baseline.whole, senior.whole)
    if baseline.halves is None or senior.halves is None:
        return Recovery(measured, None, None)
    pairs = list(permutations(baseline.halves, 2))
    null = [one(first, first, second) for first, second in pairs]
    crossed = [
        one(first, second, to, ties=0.5) for (first, second), to in product(pairs, senior.halves)
    ]
    return Recovery(measured, _means(null), _means(crossed))


def _means(recoveries: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    moved_back, of_most, of_frequent = np.mean(recoveries, axis=0).tolist()
    return moved_back, of_most, of_frequent


# Runs, and their files.


def run_drift(out: Path, senior: str, junior: str, frequent: int = FREQUENT) -> Path:
    """Measure the drift of the senior's marginal token distribution; returns the summary.

    Both distributions are estimated from solo runs with equal settings. Raises
    :class:`EvaluationError` if one is missing or the settings differ. Source: section 4.4 of the
    paper.
    """
    senior_run, junior_run = solo_summary(out, senior), solo_summary(out, junior)
    check_comparable([senior_run, junior_run])
    vocabulary = Vocabulary.from_path(senior_run.content["senior"].get("path", ""))
    pieces, texts = vocabulary.pieces, vocabulary.texts()
    if pieces_of(junior_run.content["senior"].get("path", "")) != pieces:
        raise EvaluationError("token-counts-vocabularies-differ", senior=senior, junior=junior)
    with waiting(f"count the tokens of {senior} and {junior}"):
        senior_counts, junior_counts = (
            _counted(run, len(pieces)) for run in (senior_run, junior_run)
        )
    folder = run_folder(out, "drift", senior, junior)
    write_counts(folder, senior_counts, junior_counts)
    metrics = drift_metrics(senior_counts, junior_counts, frequent)
    for entry in metrics["over_emitted"]:
        entry["text"] = repr(texts[entry["token"]].decode("utf-8", "replace"))
    content = {
        "senior": senior_run.content["senior"],
        "junior": junior_run.content["senior"],
        "settings": {
            "solo": dict(senior_run.settings),
            "junior": junior_run.content["senior"].get("fingerprint"),
            "smoothing": SMOOTHING,
            "frequent": frequent,
        },
        "metrics": metrics,
        "benchmarks": {},
    }
    return write_summary(folder, "drift", content)


def _counted(solo: Summary, vocabulary: int) -> Counts:
    samples = int(solo.settings["sampling"]["samples"])
    odd, even = (token_counts(_responses(solo, samples, part), vocabulary) for part in (1, 0))
    return Counts(odd + even, None if samples % 2 else even)


def _responses(solo: Summary, samples: int, part: int) -> Iterator[list[int]]:
    """The token ids of every second sample of each problem."""
    for name, problems in solo.problems.items():
        path = solo.folder / f"{name}.jsonl"
        for _, sample, row in read_generations(path, len(problems), samples):
            if sample % 2 == part:
                yield row["response_ids"]


def drift_metrics(senior: Counts, junior: Counts, frequent: int = FREQUENT) -> dict[str, Any]:
    """The numbers of a summary, from both models' counts.

    frequent: how often the junior must have written a token for it to count as frequent. Raises
    :class:`EvaluationError` if it wrote no token that often.
    """
    ratios = log_ratio(senior.whole, junior.whole)[junior.whole >= frequent]
    if not ratios.size:
        raise EvaluationError("junior-tokens-too-few", frequent=frequent)
    thresholds = np.linspace(0, float(np.abs(ratios).max()) or 1.0, _THRESHOLDS)
    return {
        "kl": kl_divergence(senior.whole, junior.whole),
        # Of half as many tokens, so about twice what two whole samples of one model differ by.
        "kl_of_juniors_halves": junior.halves and kl_divergence(*junior.halves),
        "tokens": {"senior": int(senior.whole.sum()), "junior": int(junior.whole.sum())},
        "frequent_tokens": int(ratios.size),
        "survival": {
            "thresholds": thresholds.tolist(),
            "shares": survival(ratios, thresholds).tolist(),
        },
        "mean_absolute_log_ratio": float(np.abs(ratios).mean()),
        "over_emitted": over_emitted(senior, junior, frequent),
        "over_emitted_by_noise": over_emitted_by_noise(junior, frequent),
    }


def write_counts(folder: Path, senior: Counts, junior: Counts) -> None:
    """Write the counts of both models: one row per written token."""
    content: dict[str, Any] = {"vocabulary": len(senior.whole)}
    for name, counts in (("senior", senior), ("junior", junior)):
        content[name] = _rows(counts.whole)
        if counts.half is not None:
            content[f"{name}_half"] = _rows(counts.half)
    write_json(folder / _COUNTS, content)


def _rows(counts: NDArray[np.int64]) -> list[list[int]]:
    return [[int(token), int(counts[token])] for token in counts.nonzero()[0]]


_Rows = list[Annotated[_TokenCount, Field(strict=False)]]


class _Counts(BaseModel):
    """The file of a drift run's counts."""

    model_config = ConfigDict(strict=True)

    vocabulary: Annotated[int, Field(ge=1, le=MAX_TOKEN_ID + 1)]
    senior: _Rows
    junior: _Rows
    senior_half: _Rows | None = None
    junior_half: _Rows | None = None

    def of(self, rows: _Rows, half: _Rows | None) -> Counts:
        """Both as arrays; raises ValueError for a half that is more than the whole."""
        counts = _dense(rows, self.vocabulary)
        part = None if half is None else _dense(half, self.vocabulary)
        if part is not None and (part > counts).any():
            raise ValueError("a half has more tokens than the whole")
        return Counts(counts, part)


def read_counts(summary: Summary) -> tuple[Counts, Counts]:
    """The token counts of a drift run: the senior's and the junior's.

    Raises :class:`EvaluationError` for a file that is missing or damaged.
    """
    path = summary.folder / _COUNTS
    try:
        counts = _Counts.model_validate(read_json(path))
        senior = counts.of(counts.senior, counts.senior_half)
        return senior, counts.of(counts.junior, counts.junior_half)
    except (OSError, ValueError, IndexError) as error:
        raise EvaluationError("token-counts-damaged", path=path) from error


def _dense(rows: list[Any], size: int) -> NDArray[np.int64]:
    counts = np.zeros(size, dtype=np.int64)
    for token, count in rows:
        counts[token] = count
    return counts


def mean_recovery(baseline: Summary, run: Summary) -> Recovery:
    """A run's recovery of a baseline's drift; for pooled runs, the mean over all pairs.

    Without nulls if one of the runs has none. Raises :class:`EvaluationError` if counts are
    missing. Source: section 4.4 of the paper.
    """
    frequent = baseline.settings["frequent"]
    pairs = [
        recovered(*first, second, frequent)
        for first, (second, _) in product(
            map(read_counts, baseline.each), map(read_counts, run.each)
        )
    ]
    nulls = [pair.null for pair in pairs if pair.null]
    crossed = [pair.crossed for pair in pairs if pair.crossed]
    is_told = len(nulls) == len(crossed) == len(pairs)
    return Recovery(
        _means([pair.measured for pair in pairs]),
        _means(nulls) if is_told else None,
        _means(crossed) if is_told else None,
    )


def seed_null(baseline: Summary) -> tuple[float, float, float] | None:
    """The cross-fitted recovery between trainings of the baseline: the mean over pairs of seeds.

    None if it is one run, or without halves. Raises :class:`EvaluationError` if counts are missing.
    """
    counts = [read_counts(run) for run in baseline.each]
    frequent = baseline.settings["frequent"]
    pairs = [
        recovered(*first, second, frequent).crossed
        for first, (second, _) in permutations(counts, 2)
    ]
    measured = [crossed for crossed in pairs if crossed is not None]
    return _means(measured) if measured and len(measured) == len(pairs) else None
