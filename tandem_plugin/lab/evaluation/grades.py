"""Grades of generations: one line a response, gone on with after a kill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.grading import OUTCOMES
from tandem_plugin.lab.evaluation.generation import GenerationFile
from tandem_plugin.lab.evaluation.results import versions
from tandem_plugin.lab.evaluation.sampling import Sampling
from tandem_plugin.lab.rollouts.grades import input_digest, response_digest
from tandem_plugin.lab.rollouts.rollout import short
from tandem_plugin.lab.rollouts.rollout_file import placed_rows

__all__ = ["GradedProblem", "grade_generations", "grades_file", "tally"]

_BATCH = 64
_DECIDING = ("tandem-plugin", "sympy")


@dataclass(slots=True)
class GradedProblem:
    """What became of one problem's samples."""

    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    truncated: int = 0
    shares: list[float] = field(default_factory=list)
    """The senior's share of each response's tokens, where a junior took part."""
    spans: int = 0

    @property
    def samples(self) -> int:
        return sum(self.outcomes.values())

    def row(self, problem: int) -> dict[str, Any]:
        """The problem's numbers in a summary."""
        return {
            "problem": problem,
            "samples": self.samples,
            "correct": self.outcomes["correct"],
            "tokens": self.tokens,
            "truncated": self.truncated,
        }


def grades_file(file: GenerationFile) -> Path:
    """Where the grades of a file of responses are."""
    return file.path.with_name(f"{file.benchmark.name}.grades.jsonl")


def grade_generations(file: GenerationFile, sampling: Sampling) -> None:
    """Grade every response that has no grade yet, with :mod:`tandem_plugin.grading`.

    A grade of other text or answers, which responses that were made anew leave behind, counts as
    none: the last grade of a response is the one that is read.
    Responses are graded as text, all of it, whoever wrote it. Source: section 3.4 and appendix A.2
    of the paper.
    """
    from tandem_plugin.grading import Grader
    from tandem_plugin.lab.rollouts.rollout_file import RolloutFile
    from tandem_plugin.progress import ShownProgress

    noted = {
        "generations": file.path.name,
        "versions": {name: versions()[name] for name in _DECIDING},
    }
    total = len(file.benchmark.problems) * sampling.samples
    with RolloutFile(grades_file(file), noted) as written:
        graded = {
            (problem, sample): record.get("input_sha256")
            for problem, sample, record in placed_rows(grades_file(file))
        }
        todo = (
            (problem, sample, row)
            for problem, sample, row in file.responses(sampling.samples)
            if graded.get((problem, sample)) != input_digest(row["response"], row["answer"])
        )
        first = list(islice(todo, _BATCH))
        if not first:
            return
        with Grader() as grader, ShownProgress() as bar:
            task = bar.add_task(f"grade {file.benchmark.name}", total=total)
            for batch in _batches(first, todo):
                grades = grader.grade_batch([(row["response"], row["answer"]) for *_, row in batch])
                for (problem, sample, row), grade in zip(batch, grades, strict=True):
                    record = {
                        "outcome": grade.outcome,
                        "answer": grade.answer,
                        "rule": grade.rule,
                        "reward": grade.reward,
                        "message": grade.message,
                        "response_sha256": response_digest(row["response"]),
                        "input_sha256": input_digest(row["response"], row["answer"]),
                    }
                    written.append(problem, sample, record)
                bar.update(task, completed=len(written.done))


def tally(file: GenerationFile, sampling: Sampling) -> list[GradedProblem]:
    """The graded problems of a file, in their order."""
    outcomes = _outcomes(grades_file(file))
    problems = [GradedProblem() for _ in file.benchmark.problems]
    shares: list[dict[int, float]] = [{} for _ in problems]
    for problem, sample, row in file.responses(sampling.samples):
        if (problem, sample) not in outcomes:
            raise EvaluationError(
                f"Response {sample} to problem {problem} of {file.benchmark.name} has no grade in "
                f"{str(grades_file(file))!r}: run the command to its end first."
            )
        found = problems[problem]
        found.outcomes[outcomes[problem, sample]] += 1
        found.tokens += len(row["response_ids"])
        found.truncated += row.get("finish_reason") == "length"
        if file.schedule is not None:
            if "authorship" not in row:
                raise EvaluationError(
                    f"Response {sample} to problem {problem} in {str(file.path)!r} says nothing of "
                    "who wrote it: it is no response of a team. Move the folder away, and make it "
                    "again."
                )
            authors = row["authorship"]
            shares[problem][sample] = sum(authors) / len(authors) if authors else float("nan")
            found.spans += bool(authors) + sum(a != b for a, b in pairwise(authors))
    for found, by_sample in zip(problems, shares, strict=True):
        found.shares = [by_sample[sample] for sample in sorted(by_sample)]
    return problems


def _outcomes(path: Path) -> dict[tuple[int, int], str]:
    outcomes: dict[tuple[int, int], str] = {}
    try:
        for problem, sample, row in placed_rows(path):
            if row.get("outcome") not in OUTCOMES:
                raise ValueError(f"it has the outcome {short(row.get('outcome'))}")
            outcomes[problem, sample] = row["outcome"]
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"The grades {str(path)!r} cannot be read: {error}. Remove them: they are made again."
        ) from error
    return outcomes


def _batches(first: list[Any], rest: Iterator[Any]) -> Iterator[list[Any]]:
    batch = first
    while batch:
        yield batch
        batch = list(islice(rest, _BATCH))
