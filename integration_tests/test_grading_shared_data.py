"""Golds of the real problem sets: changed, the next problem's, and written otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tandem_plugin.grading import Grader, GradingLimits
from tandem_plugin.lab.data import Problem, find_overlaps, read_problems

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "grading"))

from mutations import mutations, restyled

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


@pytest.mark.parametrize("name", SETS)
def test_no_gold_with_one_thing_changed_is_right(name: str):
    golds = sorted({gold.strip() for problem in problems_of(name) for gold in problem.golds})
    pairs = [(changed, gold) for gold in golds for _, changed in mutations(gold)]
    with Grader(GradingLimits(workers=2)) as grader:
        grades = grader.grade_batch((rf"So \boxed{{{answer}}}.", gold) for answer, gold in pairs)
    assert len(pairs) > 3 * len(golds)
    paid = [pair for pair, grade in zip(pairs, grades, strict=True) if grade.outcome == "correct"]
    assert paid == []
    assert {grade.outcome for grade in grades} == {"incorrect"}


@pytest.mark.parametrize("name", SETS)
def test_a_gold_written_otherwise_is_right(name: str):
    golds = sorted({gold.strip() for problem in problems_of(name) for gold in problem.golds})
    pairs = [(other, gold) for gold in golds for _, other in restyled(gold)]
    with Grader(GradingLimits(workers=2)) as grader:
        grades = grader.grade_batch((rf"So \boxed{{{answer}}}.", gold) for answer, gold in pairs)
    refused = [p for p, grade in zip(pairs, grades, strict=True) if grade.outcome != "correct"]
    assert len(refused) <= 0.005 * len(pairs), refused


def test_training_and_evaluation_problems_are_disjoint():
    train = problems_of("train_aime_1983_2023.json")
    for name in SETS[:-1]:
        assert find_overlaps(train, problems_of(name)) == []
