"""Grades that lie beside rollouts: each is shown with its own response, or none is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pages
import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app

pytest.importorskip("sympy")

ROW = {
    "response_ids": [0, 2, 1, 7],
    "authorship": [1, 1, 0, 0],
    "tandem_seed": 7,
    "tandem_fingerprint": "x",
    "prompt": "2+2?",
}


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """Three responses; the tokenizer's texts are "a ab." with white space left out of comparing."""
    file = tmp_path / "rollouts.jsonl"
    rows = [ROW | {"problem": i, "sample": 0, "response": "a ab."} for i in range(3)]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return file


def view(rollouts: Path, *options: str) -> tuple[int, Any, Any]:
    return pages.view(rollouts, rollouts.with_name("vocab.json"), *options)


def grade(file: Path, out: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["grade", str(file), "--out", str(out), "--json"])
    return done.exit_code, done.stdout


def graded_beside(rollouts: Path) -> Path:
    """Golds given and grades made while the responses' texts are what their tokens say."""
    with_golds = rollouts.with_name("with_golds.jsonl")
    rows = [json.loads(line) for line in rollouts.read_text().splitlines()]
    with_golds.write_text("".join(json.dumps(row | {"gold": "5"}) + "\n" for row in rows))
    beside = rollouts.with_name("rollouts.grades.jsonl")
    assert grade(with_golds, beside)[0] == 0
    return beside


def test_grades_beside_the_rollouts_are_joined_by_line(rollouts: Path, tokenizer_file: Path):
    beside = graded_beside(rollouts)
    records = [json.loads(line) for line in beside.read_text().splitlines()]
    records[1] |= {"outcome": "correct", "reward": 1.0, "answer": "5"}
    beside.write_text("".join(json.dumps(record) + "\n" for record in records[:2]) + '{"line": 3')
    _, _, data = view(rollouts)
    assert [response["reward"] for response in data["responses"]] == [0.0, 1.0, None]
    assert data["responses"][0]["facts"][:2] == ["gold 5", "outcome no_answer"]
    assert data["responses"][1]["facts"][:3] == ["gold 5", "outcome correct", "answered 5"]
    assert data["responses"][2]["facts"] == ["seed 7"]


def test_grades_of_another_response_are_refused(rollouts: Path, tokenizer_file: Path):
    beside = graded_beside(rollouts)
    lines = beside.read_text().splitlines()
    record = json.loads(lines[2]) | {"response_sha256": "0" * 16}
    beside.write_text("\n".join([*lines[:2], json.dumps(record)]) + "\n")
    code, result, _ = view(rollouts)
    assert code == 1
    assert "contains a grade of a different response than the one on line 3" in result["error"]


def test_grades_of_an_evaluation_are_joined_by_problem_and_sample(
    rollouts: Path, tokenizer_file: Path
):
    records = [
        {"problem": 2, "sample": 0, "outcome": "correct", "reward": 1.0, "answer": "4"},
        {"problem": 0, "sample": 0, "outcome": "no_answer", "reward": 0.0, "answer": None},
        {"problem": 0, "sample": 1, "outcome": "correct", "reward": 1.0, "answer": "4"},
    ]
    beside = rollouts.with_name("rollouts.grades.jsonl")
    beside.write_text("".join(json.dumps(record) + "\n" for record in records))
    _, _, data = view(rollouts)
    assert [response["reward"] for response in data["responses"]] == [0.0, None, 1.0]
    assert "answered 4" in data["responses"][2]["facts"]


@pytest.mark.parametrize(
    "line",
    ["[]", "x", "{}", '{"line": 1}', '{"line": 1, "outcome": "odd"}',
     '{"line": 1, "outcome": "correct"}', '{"problem": 1, "outcome": "correct"}'],
)  # fmt: skip
def test_what_is_no_grade_is_refused(rollouts: Path, tokenizer_file: Path, line: str):
    rollouts.with_name("rollouts.grades.jsonl").write_text(line + "\n")
    code, result, _ = view(rollouts)
    assert code == 1
    assert "line 1 is not a grade" in result["error"]


def test_grades_are_never_replaced(rollouts: Path, tokenizer_file: Path):
    beside = graded_beside(rollouts)
    code, result, _ = view(rollouts, "--out", str(beside))
    assert (code, "would overwrite the grades" in result["error"]) == (1, True)
