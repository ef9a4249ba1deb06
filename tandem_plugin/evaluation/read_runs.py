"""Runs that read what was generated: legibility and drift."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID
from tandem_plugin.errors import EvaluationError
from tandem_plugin.evaluation import drift
from tandem_plugin.evaluation.checkpoint import Checkpoint
from tandem_plugin.evaluation.generation import read_generations, read_rows_of
from tandem_plugin.evaluation.results import (
    COUNTS,
    SUMMARY,
    Summary,
    check_comparable,
    read_summary,
    run_folder,
    write_json,
    write_summary,
)
from tandem_plugin.files import read_file
from tandem_plugin.files.strict_json import is_number, parse_json
from tandem_plugin.rollouts.rollout import short

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tandem_plugin.evaluation.reader import Reader

__all__ = ["DriftSettings", "read_counts", "run_drift", "run_legibility", "solo_summary"]

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


def solo_summary(out: Path, name: str) -> Summary:
    """The finished solo run of a model; raises :class:`EvaluationError` where there is none."""
    path = run_folder(out, "solo", name) / SUMMARY
    if not os.path.exists(path):
        raise EvaluationError(
            f"There is no finished solo run of {name!r} in {str(out)!r}: run `tandem eval solo` "
            f"with --senior {name}=... first."
        )
    return read_summary(path)


def run_legibility(
    out: Path,
    senior: Checkpoint,
    juniors: Sequence[Checkpoint],
    *,
    samples: int | None = None,
    dtype: str = "auto",
    device: str | None = None,
) -> list[Path]:
    """How well each junior predicts the senior's own responses; returns the summaries.

    samples: only the first of each problem's responses; None reads all. Raises
    :class:`EvaluationError` where the senior has no solo run, or one by other weights. Source:
    section 4.5 of the paper, appendix B.2 for other juniors.
    """
    from tandem_plugin.evaluation.reader import Reader

    solo = solo_summary(out, senior.name)
    noted = solo.content["senior"]["fingerprint"]
    if noted != senior.fingerprint:
        raise EvaluationError(
            f"The solo run of {senior.name!r} is by a model with the fingerprint {noted}, and "
            f"{senior.path} has {senior.fingerprint}: evaluate it under another name."
        )
    asked = int(solo.settings["sampling"]["samples"])
    used = asked if samples is None else samples
    if not 1 <= used <= asked:
        raise EvaluationError(f"samples={used}: the solo run of {senior.name!r} has {asked}.")
    writer: Reader | None = None
    written: list[Path] = []
    for junior in juniors:
        folder = run_folder(out, "legibility", senior.name, junior.name)
        settings = {
            "solo": dict(solo.settings),
            "samples": used,
            "dtype": dtype,
            "junior": junior.fingerprint,
        }
        if _is_unfinished(folder, solo, senior, settings, used):
            _check_vocabularies(senior, junior)
            writer = writer or Reader(senior, dtype, device)
            reader = Reader(junior, dtype, device)
            for name in solo.problems:
                _score(folder, solo, name, senior, settings, used, writer, reader)
            reader.close()
        content = {
            "senior": senior.settings(),
            "junior": junior.settings(),
            "settings": settings,
            "benchmarks": {
                name: _problem_scores(folder, name, len(rows), used)
                for name, rows in solo.problems.items()
            },
        }
        written.append(write_summary(folder, "legibility", content))
    return written


def run_drift(out: Path, senior: str, junior: str, chosen: DriftSettings) -> Path:
    """How far the senior's marginal token distribution is from the junior's; returns the summary.

    Both are estimated from solo runs with equal settings. Raises :class:`EvaluationError` where one
    is missing or they differ. Source: section 4.4 of the paper, appendix B.1 for the tokens.
    """
    ours, theirs = solo_summary(out, senior), solo_summary(out, junior)
    check_comparable([ours, theirs])
    pieces = _pieces(ours.content["senior"]["path"])
    if _pieces(theirs.content["senior"]["path"]) != pieces:
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


def _scores_file(folder: Path, benchmark: str) -> Path:
    return folder / f"{benchmark}.scores.jsonl"


def _noted(
    name: str, solo: Summary, senior: Checkpoint, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What a file of scores depends on: not how many of the responses are read."""
    response = {k: v for k, v in solo.settings["sampling"].items() if k != "samples"}
    return {
        "senior_fingerprint": senior.fingerprint,
        "junior_fingerprint": settings["junior"],
        "benchmark": solo.settings["benchmarks"][name],
        **response,
        "dtype": settings["dtype"],
    }


def _is_unfinished(
    folder: Path, solo: Summary, senior: Checkpoint, settings: Mapping[str, Any], samples: int
) -> bool:
    from tandem_plugin.rollouts.rollout_file import RolloutFile

    for name, rows in solo.problems.items():
        noted = _noted(name, solo, senior, settings)
        with RolloutFile(_scores_file(folder, name), noted) as file:
            places = {(i, j) for i in range(len(rows)) for j in range(samples)}
            if places - file.done:
                return True
    return False


def _score(
    folder: Path,
    solo: Summary,
    name: str,
    senior: Checkpoint,
    settings: Mapping[str, Any],
    samples: int,
    writer: Reader,
    reader: Reader,
) -> None:
    """Score what has no score yet, a line a response."""
    from rich.console import Console
    from rich.progress import Progress

    from tandem_plugin.evaluation.legibility import chunk_length, score_response
    from tandem_plugin.rollouts.rollout_file import RolloutFile

    problems = len(solo.problems[name])
    chunk = chunk_length(max(writer.vocabulary, reader.vocabulary))
    console = Console(stderr=True)
    noted = _noted(name, solo, senior, settings)
    with (
        RolloutFile(_scores_file(folder, name), noted) as file,
        Progress(console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task(
            f"{senior.name} read by {reader.checkpoint.name}: {name}",
            total=problems * samples,
            completed=len(file.done),
        )
        for problem, sample, row in read_generations(
            solo.folder / f"{name}.jsonl", problems, samples
        ):
            if (problem, sample) in file.done:
                continue
            prompt, response = row["prompt_ids"], row["response_ids"]
            score = score_response(
                writer.states(prompt, response),
                writer.head,
                reader.states(prompt, response),
                reader.head,
                response,
                chunk,
            )
            record = {
                "tokens": score.tokens,
                "cross_entropy": score.cross_entropy,
                "overlap": score.overlap,
            }
            file.append(problem, sample, record)
            progress.advance(task)


def _problem_scores(folder: Path, name: str, problems: int, samples: int) -> list[dict[str, Any]]:
    """Means over the tokens of all of a problem's responses.

    A problem whose responses have no token at all has no such mean, and is refused.
    """
    scores: dict[int, list[dict[str, Any]]] = {i: [] for i in range(problems)}
    rows = read_rows_of(_scores_file(folder, name), problems, samples, _check_score)
    for problem, _, row in sorted(rows, key=lambda found: found[:2]):
        scores[problem].append(row)
    summed = []
    for problem, found in scores.items():
        tokens = sum(row["tokens"] for row in found)
        if not tokens:
            raise EvaluationError(
                f"Problem {problem} of {name} has empty responses only: there is nothing to read."
            )
        summed.append(
            {
                "problem": problem,
                "tokens": tokens,
                "cross_entropy": math.fsum(row["cross_entropy"] for row in found) / tokens,
                "overlap": math.fsum(row["overlap"] for row in found) / tokens,
            }
        )
    return summed


def _check_score(row: Mapping[str, Any]) -> None:
    numbers = [row.get(name) for name in ("tokens", "cross_entropy", "overlap")]
    if not all(map(is_number, numbers)) or type(numbers[0]) is not int or numbers[0] < 0:
        raise ValueError("its tokens, cross_entropy and overlap are no numbers")


def _check_vocabularies(senior: Checkpoint, junior: Checkpoint) -> None:
    if _pieces(senior.path) != _pieces(junior.path):
        raise EvaluationError(
            f"{senior.name!r} and {junior.name!r} have different vocabularies: the one cannot "
            "read the other's token ids."
        )


def _pieces(path: str) -> tuple[str, ...]:
    from tandem_plugin.boundaries import Vocabulary

    return Vocabulary.from_path(path).pieces
