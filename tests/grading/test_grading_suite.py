"""Pairs by class, each with its label: no wrong answer is paid, no right one refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem_plugin.grading import Grader

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("suite.jsonl").read_text(encoding="utf-8").splitlines()
]
PAIRS = [
    (row["class"], row["gold"], answer, label == "right")
    for row in ROWS
    for label in ("right", "wrong")
    for answer in row[label]
]


@pytest.fixture(scope="module")
def outcomes(grader: Grader) -> list[str]:
    grades = grader.grade_batch((f"\\boxed{{{answer}}}", gold) for _, gold, answer, _ in PAIRS)
    return [grade.outcome for grade in grades]


@pytest.mark.parametrize("group", sorted({row["class"] for row in ROWS}))
def test_every_pair_of_a_class_has_its_label(group: str, outcomes: list[str]):
    wrong = [
        (gold, answer, is_right, outcome)
        for (its_group, gold, answer, is_right), outcome in zip(PAIRS, outcomes, strict=True)
        if its_group == group and outcome != ("correct" if is_right else "incorrect")
    ]
    assert wrong == []


def test_no_gold_of_the_suite_but_words_is_unread(grader: Grader):
    grades = grader.grade_batch((r"\boxed{\sqrt{97}}", row["gold"]) for row in ROWS)
    unread = [row["gold"] for row, g in zip(ROWS, grades, strict=True) if g.rule == "unread_gold"]
    unread = [gold for gold in unread if "\\text" not in gold]
    assert unread == []
