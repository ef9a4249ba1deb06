"""Legibility: how well juniors predict what seniors wrote alone.

The models are loaded (:mod:`tandem_plugin.lab.evaluation.scoring`) where a score is missing: what
is finished is read without PyTorch, for instance to grade it with an additional grader.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import is_number
from tandem_plugin.lab.evaluation.generation import (
    is_complete,
    read_generations,
)
from tandem_plugin.lab.evaluation.inputs import Checkpoint, pieces_of
from tandem_plugin.lab.evaluation.results import Summary, run_folder, solo_summary, write_summary
from tandem_plugin.lab.rollouts.rollout_file import RolloutFile
from tandem_plugin.progress import ShownProgress

if TYPE_CHECKING:
    from tandem_plugin.lab.evaluation.scoring import HFModel


SCORES = ("cross_entropy", "overlap", "entropy", "kl")
"""What a response is scored by: sums over its positions."""


def run_legibility(
    out: Path,
    senior: Checkpoint,
    juniors: Sequence[Checkpoint],
    samples: int | None = None,
    dtype: str = "auto",
    protocol: Mapping[str, Any] | None = None,
) -> list[Path]:
    """How well each junior predicts the senior's own responses; returns the summaries.

    samples: number of each problem's responses to read; None reads all. protocol: the summaries'
    record of the protocol. Raises :class:`EvaluationError` if the senior has no solo run, or one
    with other weights or with images. Source: section 4.5 of the paper, appendix B.2 for other
    juniors.
    """
    solo = solo_summary(out, senior.name, senior.fingerprint)
    for name, benchmark in solo.settings["benchmarks"].items():
        if benchmark.get("images"):
            raise EvaluationError("legibility-with-images", name=name)
    sampled = int(solo.settings["sampling"]["samples"])
    used = sampled if samples is None else samples
    if not 1 <= used <= sampled:
        raise EvaluationError(
            "solo-run-samples-differ", used=used, senior=senior.name, sampled=sampled
        )
    writer: HFModel | None = None
    written: list[Path] = []
    for junior in juniors:
        settings = {
            "solo": dict(solo.settings),
            "samples": used,
            "dtype": dtype,
            "junior": junior.fingerprint,
        }
        folder = run_folder(out, "legibility", senior.name, junior.name)
        files = {name: folder / f"{name}.scores.jsonl" for name in solo.problems}
        noted = {name: _noted(name, solo, senior, settings) for name in solo.problems}
        unscored = [
            name
            for name, rows in solo.problems.items()
            if not is_complete(files[name], noted[name], len(rows), used, _check_score)
        ]
        if unscored:
            if pieces_of(senior.path) != pieces_of(junior.path):
                raise EvaluationError(
                    "evaluation-vocabularies-differ", senior=senior.name, junior=junior.name
                )
            from tandem_plugin.lab.evaluation.scoring import HFModel

            writer = writer or HFModel(senior, dtype)
            reader = HFModel(junior, dtype)
            for name in unscored:
                _score(files[name], noted[name], solo, name, used, writer, reader)
            reader.close()
        content = {
            "senior": asdict(senior),
            "junior": asdict(junior),
            "settings": settings,
            "benchmarks": {
                name: _problem_scores(files[name], name, len(rows), used)
                for name, rows in solo.problems.items()
            },
            **({} if protocol is None else {"protocol": dict(protocol)}),
        }
        written.append(write_summary(folder, "legibility", content))
    return written


def _noted(
    name: str, solo: Summary, senior: Checkpoint, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that a file of scores depends on, except the number of responses read."""
    response = {k: v for k, v in solo.settings["sampling"].items() if k != "samples"}
    return {
        "senior_fingerprint": senior.fingerprint,
        "junior_fingerprint": settings["junior"],
        "benchmark": solo.settings["benchmarks"][name],
        **response,
        "dtype": settings["dtype"],
        "scores": list(SCORES),
    }


def _score(
    path: Path,
    noted: Mapping[str, Any],
    solo: Summary,
    name: str,
    samples: int,
    writer: HFModel,
    reader: HFModel,
) -> None:
    """Score responses without a score, one line per response."""
    from tandem_plugin.lab.evaluation.scoring import chunk_length, score_response

    problems = len(solo.problems[name])
    chunk = chunk_length(max(writer.vocabulary, reader.vocabulary))
    responses = read_generations(solo.folder / f"{name}.jsonl", problems, samples)
    with RolloutFile(path, noted) as file, ShownProgress(transient=False) as progress:
        task = progress.add_task(
            f"{solo.senior} read by {reader.checkpoint.name}: {name}",
            total=problems * samples,
            completed=len(file.done),
        )
        for problem, sample, row in responses:
            if (problem, sample) in file.done:
                continue
            prompt, response = row["prompt_ids"], row["response_ids"]
            senior_states, junior_states = (
                writer.states(prompt, response),
                reader.states(prompt, response),
            )
            score = score_response(
                senior_states, writer.head, junior_states, reader.head, response, chunk
            )
            file.append(problem, sample, asdict(score))
            progress.advance(task)


def _problem_scores(path: Path, name: str, problems: int, samples: int) -> list[dict[str, Any]]:
    """Means over the tokens of all of a problem's responses, and over responses of each one's mean.

    A problem whose responses have no tokens has no such mean, and is rejected.
    """
    scores: dict[int, list[dict[str, Any]]] = {i: [] for i in range(problems)}
    rows = read_generations(path, problems, samples, _check_score)
    for problem, _, row in sorted(rows, key=lambda placed: placed[:2]):
        scores[problem].append(row)
    summed = []
    for problem, responses in scores.items():
        tokens = sum(row["tokens"] for row in responses)
        written = [row for row in responses if row["tokens"]]
        if not tokens:
            raise EvaluationError("problem-responses-empty", problem=problem, name=name)
        summed.append(
            {
                "problem": problem,
                "tokens": tokens,
                **{name: math.fsum(row[name] for row in responses) / tokens for name in SCORES},
                "responses": len(written),
                **{
                    f"response_{name}": statistics.fmean(
                        row[name] / row["tokens"] for row in written
                    )
                    for name in SCORES
                },
            }
        )
    return summed


def _check_score(row: Mapping[str, Any]) -> None:
    numbers = [row.get(name) for name in ("tokens", *SCORES)]
    if not all(map(is_number, numbers)) or type(numbers[0]) is not int or numbers[0] < 0:
        raise ValueError(f"its tokens, {', '.join(SCORES)} are not numbers")
