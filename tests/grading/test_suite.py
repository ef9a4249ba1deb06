"""Pairs with their labels: no wrong answer is rewarded, no right one rejected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tandem_plugin.grading import Grader

PAGE = Path(__file__).parents[2] / "docs" / "grading.md"


def rows_of(name: str) -> list[dict[str, Any]]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


ROWS, CASES = rows_of("suite.jsonl"), rows_of("cases.jsonl")


def test_every_pair_has_its_label(grader: Grader):
    pairs = [
        (row["gold"], answer, outcome)
        for row in ROWS
        for label, outcome in (("right", "correct"), ("wrong", "incorrect"))
        for answer in row[label]
    ]
    grades = grader.grade_batch((f"\\boxed{{{answer}}}", gold) for gold, answer, _ in pairs)
    wrong = [pair for pair, grade in zip(pairs, grades, strict=True) if grade.outcome != pair[2]]
    assert wrong == []


def test_every_case_has_its_outcome_by_its_rule(grader: Grader):
    grades = grader.grade_batch((case["response"], case["gold"]) for case in CASES)
    wrong = [
        (case, grade)
        for case, grade in zip(CASES, grades, strict=True)
        if (grade.outcome, grade.rule) != (case["expected"], case["rule"])
    ]
    assert wrong == []


def test_every_right_answer_is_right_against_itself(grader: Grader):
    golds = sorted({case["gold"] for case in CASES} - {r"\frac{0}{0}", r"\frac{1}{0}"})
    grades = grader.grade_batch((f"\\boxed{{{gold}}}", gold) for gold in golds)
    wrong = [gold for gold, grade in zip(golds, grades, strict=True) if grade.outcome != "correct"]
    assert wrong == []


def test_no_gold_of_the_suite_but_words_is_unread(grader: Grader):
    golds = [row["gold"] for row in ROWS if "\\text" not in row["gold"]]
    grades = grader.grade_batch((r"\boxed{\sqrt{97}}", gold) for gold in golds)
    unread = [g for g, grade in zip(golds, grades, strict=True) if grade.rule == "unread_gold"]
    assert unread == []


def test_what_the_page_says_is_graded_as_written(grader: Grader):
    section = PAGE.read_text(encoding="utf-8").partition("## As written")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+) \| (.+) \|$", section, re.MULTILINE)
    pairs = [
        (gold, answer, outcome)
        for gold, *cells in rows
        for cell, outcome in zip(cells, ("correct", "incorrect"), strict=True)
        for answer in (f"`{gold}`, {cell}" if outcome == "correct" else cell)
        .strip("`")
        .split("`, `")
    ]
    assert len(pairs) > 50
    grades = grader.grade_batch((f"\\boxed{{{answer}}}", gold) for gold, answer, _ in pairs)
    wrong = [pair for pair, grade in zip(pairs, grades, strict=True) if grade.outcome != pair[2]]
    assert wrong == []
