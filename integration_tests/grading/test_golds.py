"""Golds of the real problem sets: as they are, changed, the next problem's, and restyled."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandem_plugin.grading import Grade, Grader
from tandem_plugin.lab.data import Problem, load_named, read_problems

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))

from mutations import mutations, restyled

SETS = {
    "aime24.jsonl": 30,
    "aime25.jsonl": 30,
    "aime26.jsonl": 30,
    "amc23.jsonl": 40,
    "minerva.json": 272,
    "train_aime_1983_2023.json": 975,
}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as shared:
        yield shared


def problem_file(name: str) -> Path:
    root = Path(__file__).parents[3]
    folder = Path(os.environ.get("TANDEM_SHARED_DATA", root / "shared" / "data"))
    file = folder / "problems" / name
    if not file.exists():
        pytest.skip(f"no problems at {file}: set TANDEM_SHARED_DATA to the folder that has them")
    return file


def problems_of(name: str) -> tuple[Problem, ...]:
    return read_problems(problem_file(name)).problems


def golds_of(name: str) -> list[str]:
    return sorted({gold.strip() for problem in problems_of(name) for gold in problem.golds})


def graded(grader: Grader, pairs: list[tuple[str, Any]]) -> list[Grade]:
    return grader.grade_batch((rf"So \boxed{{{answer}}}.", gold) for answer, gold in pairs)


def next_different(problems: tuple[Problem, ...], place: int) -> Problem:
    own = {"".join(gold.split()) for gold in problems[place].golds}
    turned = problems[place + 1 :] + problems[:place]
    return next(p for p in turned if not own & {"".join(gold.split()) for gold in p.golds})


@pytest.mark.parametrize("name", SETS)
def test_every_gold_is_right_against_itself(grader: Grader, name: str):
    problems = problems_of(name)
    assert len(problems) == SETS[name]
    grades = graded(grader, [(problem.golds[0], problem.golds) for problem in problems])
    assert {grade.outcome for grade in grades} == {"correct"}


def test_raw_golds_are_right_against_themselves(grader: Grader):
    rows = json.loads(problem_file("minerva.json").read_text(encoding="utf-8"))
    grades = graded(grader, [(row["answer"][-1], row["answer"]) for row in rows])
    assert [grade.outcome for grade in grades] == ["correct"] * 272


@pytest.mark.parametrize("name", SETS)
def test_no_gold_is_right_against_the_next_different_one(grader: Grader, name: str):
    problems = problems_of(name)
    others = [next_different(problems, place) for place in range(len(problems))]
    pairs = [(b.golds[0], a.golds) for a, b in zip(problems, others, strict=True)]
    assert {grade.outcome for grade in graded(grader, pairs)} == {"incorrect"}


@pytest.mark.parametrize("name", SETS)
def test_no_gold_with_one_thing_changed_is_right(grader: Grader, name: str):
    golds = golds_of(name)
    pairs = [(changed, gold) for gold in golds for _, changed in mutations(gold)]
    assert len(pairs) > 3 * len(golds)
    grades = graded(grader, pairs)
    paid = [pair for pair, grade in zip(pairs, grades, strict=True) if grade.outcome == "correct"]
    assert paid == []
    assert {grade.outcome for grade in grades} == {"incorrect"}


@pytest.mark.parametrize("name", SETS)
def test_a_restyled_gold_is_right(grader: Grader, name: str):
    pairs = [(other, gold) for gold in golds_of(name) for _, other in restyled(gold)]
    grades = graded(grader, pairs)
    refused = [p for p, grade in zip(pairs, grades, strict=True) if grade.outcome != "correct"]
    assert len(refused) <= 0.005 * len(pairs), refused


def test_the_files_are_the_named_sets():
    years = tuple(problem_file(f"aime{year}.jsonl") for year in (24, 25, 26))
    assert len(load_named("aime24-26", years)) == 90
    assert len(load_named("minerva", (problem_file("minerva.json"),))) == 272
    assert len(load_named("amc23", (problem_file("amc23.jsonl"),))) == 40
