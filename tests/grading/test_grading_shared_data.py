"""Every gold of the real problem sets is right against itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tandem_plugin.grading import Grader
from tandem_plugin.lab.data import load_named, read_problems

SETS = {
    "aime24.jsonl": 30,
    "aime25.jsonl": 30,
    "aime26.jsonl": 30,
    "amc23.jsonl": 40,
    "minerva.json": 272,
    "train_aime_1983_2023.json": 975,
}


def problem_file(name: str) -> Path:
    root = Path(__file__).parents[3]
    folder = Path(os.environ.get("TANDEM_SHARED_DATA", root / "shared" / "data"))
    file = folder / "problems" / name
    if not file.exists():
        pytest.skip(f"no problems at {file}: set TANDEM_SHARED_DATA to the folder that has them")
    return file


@pytest.mark.parametrize("name", SETS)
def test_every_gold_is_right_against_itself(grader: Grader, name: str):
    problems = read_problems(problem_file(name)).problems
    assert len(problems) == SETS[name]
    pairs: list[tuple[str, Any]] = [(rf"So \boxed{{{p.golds[0]}}}.", p.golds) for p in problems]
    assert {grade.outcome for grade in grader.grade_batch(pairs)} == {"correct"}


def test_raw_golds_are_right_against_themselves(grader: Grader):
    rows = json.loads(problem_file("minerva.json").read_text(encoding="utf-8"))
    grades = grader.grade_batch((rf"\boxed{{{row['answer'][-1]}}}", row["answer"]) for row in rows)
    assert [grade.outcome for grade in grades] == ["correct"] * 272


def test_the_files_are_the_named_sets():
    years = tuple(problem_file(f"aime{year}.jsonl") for year in (24, 25, 26))
    assert len(load_named("aime24-26", years)) == 90
    assert len(load_named("minerva", (problem_file("minerva.json"),))) == 272
    assert len(load_named("amc23", (problem_file("amc23.jsonl"),))) == 40
