from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem_plugin.grading import Grader

FILE = Path(__file__).with_name("cases.jsonl")
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def outcomes(grader: Grader) -> list[tuple[str, str]]:
    grades = grader.grade_batch((case["response"], case["gold"]) for case in CASES)
    return [(grade.outcome, grade.rule) for grade in grades]


@pytest.mark.parametrize("topic", sorted({case["topic"] for case in CASES}))
def test_every_case_has_its_outcome_by_its_rule(topic: str, outcomes: list[tuple[str, str]]):
    wrong = [
        (case["gold"], case["response"], got)
        for case, got in zip(CASES, outcomes, strict=True)
        if case["topic"] == topic and got != (case["expected"], case["rule"])
    ]
    assert wrong == []


def test_every_right_answer_is_right_against_itself(grader: Grader):
    golds = sorted({case["gold"] for case in CASES} - {r"\frac{0}{0}", r"\frac{1}{0}"})
    grades = grader.grade_batch((f"\\boxed{{{gold}}}", gold) for gold in golds)
    wrong = [gold for gold, grade in zip(golds, grades, strict=True) if grade.outcome != "correct"]
    assert wrong == []
