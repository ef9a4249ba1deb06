"""Runs of drift: how far seniors use the vocabulary otherwise than a junior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import read_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.evaluation import drift
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
from tandem_plugin.lab.rollouts.rollout import short
from tandem_plugin.progress import waiting

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DriftSettings",
    "drift_metrics",
    "mean_recovery",
    "read_counts",
    "run_drift",
    "write_counts",
]

_LISTED = 100
"""How many over-emitted tokens a summary lists."""

_THRESHOLDS = 200
"""Points of a survival curve."""

_MOST_FOLDS = 1000
"""Counts of earlier versions are in folds of the responses, 24 of them."""

_MOST_COUNTED = 2**53
"""Counts stay below it, so that they and their sums are exact as floats."""


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """What drift depends on beside the responses."""

    smoothing: float = drift.SMOOTHING
    frequent: int = drift.FREQUENT

    def settings(self) -> dict[str, Any]:
        """For a result."""
        return {"smoothing": self.smoothing, "frequent": self.frequent}


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
        senior_counts = drift.token_counts(_responses(senior_run), len(pieces))
        junior_counts = drift.token_counts(_responses(junior_run), len(pieces))
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
    senior: NDArray[Any], junior: NDArray[Any], pieces: Sequence[str], chosen: DriftSettings
) -> dict[str, Any]:
    """The numbers of a summary, from both models' counts ``[vocabulary]``.

    Raises :class:`EvaluationError` where the junior wrote no token often enough.
    """
    import numpy as np

    ratios = drift.log_ratio(senior, junior, chosen.smoothing)
    frequent = ratios[junior >= chosen.frequent]
    if not frequent.size:
        raise EvaluationError("TP853", frequent=chosen.frequent)
    thresholds = np.linspace(0, float(np.abs(frequent).max()) or 1.0, _THRESHOLDS)
    over = drift.most_over_emitted(senior, junior, _LISTED, chosen.frequent, chosen.smoothing)
    return {
        "kl": drift.kl_divergence(senior, junior, chosen.smoothing),
        "tokens": {"senior": int(senior.sum()), "junior": int(junior.sum())},
        "frequent_tokens": int(frequent.size),
        "survival": {
            "thresholds": thresholds.tolist(),
            "shares": drift.survival(frequent, thresholds).tolist(),
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


def write_counts(folder: Path, senior: NDArray[Any], junior: NDArray[Any]) -> None:
    """Write the counts ``[vocabulary]`` of both models: a row a token that was written."""
    content: dict[str, Any] = {"vocabulary": len(senior)}
    for name, counts in (("senior", senior), ("junior", junior)):
        content[name] = [[int(token), int(counts[token])] for token in counts.nonzero()[0]]
    write_json(folder / COUNTS, content)


def read_counts(summary: Summary) -> tuple[NDArray[Any], NDArray[Any]]:
    """The token counts of a drift run: the senior's and the junior's, ``[vocabulary]`` each.

    Raises :class:`EvaluationError` for a file that is missing or none.
    """
    path = summary.folder / COUNTS
    try:
        content = parse_json(read_file(path))
        size, folds = content["vocabulary"], content.get("folds", 1)
        if type(size) is not int or not 0 < size <= MAX_TOKEN_ID + 1:
            raise ValueError(f"a vocabulary of {short(size)} tokens")
        if type(folds) is not int or not 0 < folds <= _MOST_FOLDS:
            raise ValueError(f"{short(folds)} folds")
        return _counts(content["senior"], size, folds), _counts(content["junior"], size, folds)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise EvaluationError("TP851", path=path, error=error) from error


def mean_recovery(baseline: Summary, other: Summary, top: int) -> drift.DriftRecovery:
    """What a run recovers of a baseline's drift; of pooled runs the mean over all pairs.

    Raises :class:`EvaluationError` where counts are missing, or are not of one vocabulary.
    """
    import numpy as np

    found = [_recovery(*pair, top) for pair in product(baseline.each, other.each)]
    return drift.DriftRecovery(*np.mean(found, axis=0).tolist())


def _recovery(baseline: Summary, other: Summary, top: int) -> drift.DriftRecovery:
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
    return drift.drift_recovery(junior, base, counts, top, frequent, smoothing)


def _counts(rows: Any, size: int, folds: int) -> NDArray[Any]:
    import numpy as np

    counts = np.zeros(size, dtype=np.int64)
    for token, *found in rows:
        if type(token) is not int or not 0 <= token < size:
            raise ValueError(f"the token {short(token)} in a vocabulary of {size}")
        if len(found) != folds or not all(type(c) is int and c >= 0 for c in found):
            raise ValueError(f"{short(found)} of the token {token} in {folds} fold(s)")
        if sum(found) >= _MOST_COUNTED:
            raise ValueError(f"{short(sum(found))} of the token {token}")
        counts[token] = sum(found)
    return counts


def _responses(solo: Summary) -> Iterator[list[int]]:
    samples = int(solo.settings["sampling"]["samples"])
    for name, problems in solo.problems.items():
        path = solo.folder / f"{name}.jsonl"
        for _, _, row in read_generations(path, len(problems), samples):
            yield row["response_ids"]
