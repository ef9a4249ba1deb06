"""Runs of drift: how far seniors use the vocabulary otherwise than a junior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.errors import EvaluationError
from tandem_plugin.evaluation import drift
from tandem_plugin.evaluation.checkpoint import pieces_of
from tandem_plugin.evaluation.generation import read_generations
from tandem_plugin.evaluation.results import (
    COUNTS,
    Summary,
    check_comparable,
    run_folder,
    solo_summary,
    write_json,
    write_summary,
)
from tandem_plugin.files import read_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.rollouts.rollout import short

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DriftSettings", "read_counts", "run_drift"]


_LISTED = 100
"""How many over-emitted tokens a summary lists."""

_THRESHOLDS = 200

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
    ours, theirs = solo_summary(out, senior), solo_summary(out, junior)
    check_comparable([ours, theirs])
    pieces = pieces_of(ours.content["senior"]["path"])
    if pieces_of(theirs.content["senior"]["path"]) != pieces:
        raise EvaluationError(
            f"{senior!r} and {junior!r} have different vocabularies: the use of tokens cannot be "
            "compared."
        )
    counts = {
        "senior": drift.token_counts(_response_ids(ours), len(pieces)),
        "junior": drift.token_counts(_response_ids(theirs), len(pieces)),
    }
    folder = run_folder(out, "drift", senior, junior)
    write_json(
        folder / COUNTS,
        {
            "vocabulary": len(pieces),
            **{
                name: [[int(t), int(found[t])] for t in found.nonzero()[0]]
                for name, found in counts.items()
            },
        },
    )
    measured = _drift_numbers(counts["senior"], counts["junior"], pieces, chosen)
    content = {
        "senior": ours.content["senior"],
        "junior": theirs.content["senior"],
        "settings": {
            "solo": dict(ours.settings),
            "junior": theirs.content["senior"]["fingerprint"],
            **chosen.settings(),
        },
        "metrics": measured,
        "benchmarks": {},
    }
    return write_summary(folder, "drift", content)


def read_counts(summary: Summary) -> tuple[NDArray[Any], NDArray[Any]]:
    """The token counts of a drift run: the senior's and the junior's, ``[vocabulary]`` each."""
    import numpy as np

    path = summary.folder / COUNTS
    try:
        content = parse_json(read_file(path))
        size = content["vocabulary"]
        if type(size) is not int or not 0 < size <= MAX_TOKEN_ID + 1:
            raise ValueError(f"a vocabulary of {short(size)} tokens")
        found = []
        for name in ("senior", "junior"):
            counts = np.zeros(size, dtype=np.int64)
            for token, count in content[name]:
                if not 0 <= token < size or not 0 <= count < _MOST_COUNTED:
                    raise ValueError(f"{short(count)} of the token {short(token)}")
                counts[token] = count
            found.append(counts)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise EvaluationError(f"The counts {str(path)!r} cannot be read: {error}.") from error
    return found[0], found[1]


def _drift_numbers(
    senior: NDArray[Any], junior: NDArray[Any], pieces: Sequence[str], chosen: DriftSettings
) -> dict[str, Any]:
    import numpy as np

    ratios = drift.log_ratio(senior, junior, chosen.smoothing)
    frequent = ratios[junior >= chosen.frequent]
    if not frequent.size:
        raise EvaluationError(
            f"The junior wrote no token {chosen.frequent} times: give a smaller --frequent."
        )
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


def _response_ids(solo: Summary) -> Iterator[list[int]]:
    samples = int(solo.settings["sampling"]["samples"])
    for name, problems in solo.problems.items():
        for _, _, row in read_generations(solo.folder / f"{name}.jsonl", len(problems), samples):
            yield row["response_ids"]
