"""No gold of the real problem sets is right against the next problem's different gold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tandem_plugin.data import Problem, find_overlaps, read_problems
from tandem_plugin.grading import Grader, GradingLimits

SETS = (
    "aime24.jsonl",
    "aime25.jsonl",
    "aime26.jsonl",
    "amc23.jsonl",
    "minerva.json",
    "train_aime_1983_2023.json",
)
TRULY_EQUAL: set[tuple[str, int, int]] = set()
"""(file, row, row) of neighbours whose golds differ as text and are equal all the same."""


def problems_of(name: str) -> tuple[Problem, ...]:
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("TANDEM_SHARED_DATA", root / "shared" / "data"))
    file = folder / "problems" / name
    if not file.exists():
        pytest.skip(f"no problems at {file}: set TANDEM_SHARED_DATA to the folder that has them")
    return read_problems(file).problems


def next_different(problems: tuple[Problem, ...], place: int) -> Problem:
    own = {"".join(gold.split()) for gold in problems[place].golds}
    turned = problems[place + 1 :] + problems[:place]
    return next(p for p in turned if not own & {"".join(gold.split()) for gold in p.golds})


@pytest.mark.parametrize("name", SETS)
def test_no_gold_is_right_against_the_next_different_one(name: str):
    problems = problems_of(name)
    others = [next_different(problems, place) for place in range(len(problems))]
    pairs = [
        (rf"So \boxed{{{other.golds[0]}}}.", problem.golds)
        for problem, other in zip(problems, others, strict=True)
    ]
    with Grader(GradingLimits(workers=2)) as grader:
        grades = grader.grade_batch(pairs)
    equal = {
        (name, problem.row, other.row)
        for problem, other, grade in zip(problems, others, grades, strict=True)
        if grade.outcome == "correct"
    }
    assert equal == {found for found in TRULY_EQUAL if found[0] == name}
    assert {grade.outcome for grade in grades} <= {"correct", "incorrect"}


def test_training_and_evaluation_problems_are_disjoint():
    train = problems_of("train_aime_1983_2023.json")
    for name in SETS[:-1]:
        assert find_overlaps(train, problems_of(name)) == []
