"""The study's problems: for training, for validation while training, and held out of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo import KINDS, Problem, draw_distinct, make_row, write_parquet
from size import Size

HELD_OUT_SEED, VALIDATION_SEED, TRAINING_SEED = 17, 19, 23


@dataclass(frozen=True, slots=True)
class ProblemFiles:
    """Where the problems are: benchmarks for `tandem eval`, parquet for verl."""

    folder: Path

    @property
    def train(self) -> Path:
        return self.folder / "train.parquet"

    @property
    def validation(self) -> Path:
        return self.folder / "validation.parquet"

    @property
    def benchmarks(self) -> dict[str, Path]:
        """One for each kind of problem."""
        return {kind: self.folder / f"{kind}.jsonl" for kind in KINDS}


def held_out_problems(size: Size) -> list[Problem]:
    """As many of each kind; no question is taught, trained on or validated with."""
    wanted = dict.fromkeys(KINDS, size.problems)
    chosen = []
    for problem in draw_distinct(20 * size.problems * len(KINDS), HELD_OUT_SEED):
        if wanted[problem.kind]:
            wanted[problem.kind] -= 1
            chosen.append(problem)
    return chosen


def validation_problems(size: Size, held_out: Sequence[Problem]) -> list[Problem]:
    """For validation while training."""
    return draw_distinct(size.validation_problems, VALIDATION_SEED, without=_questions(held_out))


def write_problems(
    files: ProblemFiles, size: Size, held_out: Sequence[Problem], validation: Sequence[Problem]
) -> None:
    """Writes all of them; the same size gives the same files."""
    files.folder.mkdir(parents=True, exist_ok=True)
    for kind, path in files.benchmarks.items():
        rows = [
            {"problem": one.question, "answer": one.answer} for one in held_out if one.kind == kind
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    training = draw_distinct(
        size.training.steps * size.training.prompts,
        TRAINING_SEED,
        without=_questions([*held_out, *validation]),
    )
    for problems, path, split in (
        (training, files.train, "train"),
        (validation, files.validation, "validation"),
    ):
        write_parquet((make_row(one.question, one.answer) for one in problems), path, split)


def _questions(problems: Sequence[Problem]) -> frozenset[str]:
    return frozenset(problem.question for problem in problems)
