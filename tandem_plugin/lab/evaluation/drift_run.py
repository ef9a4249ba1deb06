"""Runs of drift: how far seniors use the vocabulary otherwise than a junior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation import drift
from tandem_plugin.lab.evaluation.checkpoint import pieces_of
from tandem_plugin.lab.evaluation.drift_counts import fold_counts, write_counts
from tandem_plugin.lab.evaluation.generation import read_generations
from tandem_plugin.lab.evaluation.noise_floor import noise_floor, second_seed, seed_of
from tandem_plugin.lab.evaluation.results import (
    Summary,
    check_comparable,
    run_folder,
    solo_summary,
    write_summary,
)
from tandem_plugin.progress import waiting

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DriftSettings", "run_drift"]


_LISTED = 100
"""How many over-emitted tokens a summary lists."""

_THRESHOLDS = 200


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """What drift depends on beside the responses."""

    smoothing: float = drift.SMOOTHING
    frequent: int = drift.FREQUENT

    def settings(self) -> dict[str, Any]:
        """For a result."""
        return {"smoothing": self.smoothing, "frequent": self.frequent}


def run_drift(
    out: Path, senior: str, junior: str, chosen: DriftSettings, floor: Path | None = None
) -> Path:
    """How far the senior's marginal token distribution is from the junior's; returns the summary.

    Both are estimated from solo runs with equal settings. floor: the junior's own results with
    another seed, whose drift is noise. Raises :class:`EvaluationError` where one is missing or they
    differ. Source: section 4.4 of the paper, appendix B.1 for the tokens.
    """
    ours, theirs = solo_summary(out, senior), solo_summary(out, junior)
    check_comparable([ours, theirs])
    pieces = pieces_of(ours.content["senior"]["path"])
    if pieces_of(theirs.content["senior"]["path"]) != pieces:
        raise EvaluationError(
            f"{senior!r} and {junior!r} have different vocabularies: the use of tokens cannot be "
            "compared. Choose a junior with the senior's tokenizer."
        )
    again = None if floor is None else second_seed(floor, theirs)
    with waiting(f"count the tokens of {senior} and {junior}"):
        found = [fold_counts(_responses(one), len(pieces)) for one in (ours, theirs)]
    folder = run_folder(out, "drift", senior, junior)
    write_counts(folder, *found)
    senior_counts, junior_counts = (each.sum(0) for each in found)
    measured = _drift_numbers(senior_counts, junior_counts, pieces, chosen)
    if again is not None:
        second = fold_counts(_responses(again), len(pieces)).sum(0)
        measured["floor"] = {
            "seed": seed_of(again),
            **noise_floor(second, junior_counts, chosen.smoothing, chosen.frequent),
        }
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


def _responses(solo: Summary) -> Iterator[tuple[int, int, list[int]]]:
    samples = int(solo.settings["sampling"]["samples"])
    for name, problems in solo.problems.items():
        path = solo.folder / f"{name}.jsonl"
        for problem, sample, row in read_generations(path, len(problems), samples):
            yield problem, sample, row["response_ids"]
