"""Grades that lie beside rollouts: each is shown with its own response, or none is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pages
import pytest

from tandem_plugin.lab.rollouts.rollout import text_digest

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


def graded(problem: int, **more: Any) -> dict[str, Any]:
    """A record of ``tandem eval``."""
    record = {"problem": problem, "sample": 0, "outcome": "no_answer", "reward": 0.0}
    return {**record, "answer": None, "response_sha256": text_digest("a ab."), **more}


def graded_beside(rollouts: Path, *records: dict[str, Any]) -> Path:
    beside = rollouts.with_name("rollouts.grades.jsonl")
    beside.write_text("".join(json.dumps(record) + "\n" for record in records))
    return beside


def test_grades_beside_the_rollouts_are_joined_by_problem_and_sample(
    rollouts: Path, tokenizer_file: Path
):
    right = {"outcome": "correct", "reward": 1.0, "answer": "4"}
    beside = graded_beside(rollouts, graded(2, **right), graded(0), graded(0, sample=1, **right))
    beside.write_text(beside.read_text() + '{"problem": 3')
    _, _, data = view(rollouts)
    assert [response["reward"] for response in data["responses"]] == [0.0, None, 1.0]
    assert data["responses"][0]["facts"][0] == "outcome no_answer"
    assert data["responses"][1]["facts"] == ["seed 7", "1 junior span of 2 tokens"]
    assert data["responses"][2]["facts"][:2] == ["outcome correct", "answered 4"]


def test_grades_of_another_response_are_refused(rollouts: Path, tokenizer_file: Path):
    graded_beside(rollouts, graded(2, response_sha256="0" * 16))
    code, result, _ = view(rollouts)
    assert code == 1
    assert "than the one on line 3." in result["error"]
    assert result["error"].endswith("[grade-of-other-response]")


@pytest.mark.parametrize(
    "line",
    ["[]", "x", "{}", '{"problem": 1, "sample": 0, "outcome": "odd"}',
     '{"problem": 1, "outcome": "correct"}'],
)  # fmt: skip
def test_what_is_no_grade_is_refused(rollouts: Path, tokenizer_file: Path, line: str):
    rollouts.with_name("rollouts.grades.jsonl").write_text(line + "\n")
    code, result, _ = view(rollouts)
    assert code == 1
    assert "line 1 is not a grade" in result["error"]
    assert result["error"].endswith("[grade-line-invalid]")


def test_grades_are_never_replaced(rollouts: Path, tokenizer_file: Path):
    beside = graded_beside(rollouts, graded(0))
    code, result, _ = view(rollouts, "--out", str(beside))
    assert (code, "would overwrite the grades" in result["error"]) == (1, True)
