"""Validations are compared with a run's first: a fall is reported, and chance is not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tandem_plugin.training.validation_log import (
    CHANGE,
    FILE,
    JUNIOR_ALONE,
    Validation,
    ValidationLog,
    read_validations,
)


def answerers(log: ValidationLog, setting: str) -> tuple[str, ...]:
    return tuple(validation.answerer for validation in log.passes(setting))


def test_fall_is_reported_with_its_error_and_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    log = ValidationLog()
    assert log.add("senior", 0.44, 400, 0) == {CHANGE: 0}
    assert log.add("senior", 0.52, 400, 5) == {CHANGE: pytest.approx(0.08)}
    assert capsys.readouterr().err == ""
    assert log.add("senior", 0.19, 400, 10) == {CHANGE: pytest.approx(-0.25)}
    # sqrt((0.19 * 0.81 + 0.44 * 0.56) / 400)
    said = capsys.readouterr().err
    assert "WARNING: the senior alone solves 19.0% of the validation problems, 25.0 ± 3.2" in said
    assert "tandem.alone=0.25" in said


def test_same_fall_on_few_problems_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    log = ValidationLog()
    log.add("senior", 0.5, 8, 0)
    assert log.add("senior", 0.25, 8, 1) == {CHANGE: -0.25}
    assert capsys.readouterr().err == ""


def test_senior_that_does_not_change_is_seldom_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = random.Random(3)

    def accuracy() -> float:
        return sum(rng.random() < 0.6 for _ in range(200)) / 200

    for _ in range(300):
        log = ValidationLog()
        log.add("senior", accuracy(), 200, 0)
        log.add("senior", accuracy(), 200, 1)
    assert 0 < capsys.readouterr().err.count("WARNING") <= 0.05 * 300


@pytest.mark.parametrize("accuracy", [None, -1.0, 17.5, float("nan")])
def test_reward_without_bounds_is_not_judged(
    accuracy: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    log = ValidationLog()
    assert log.add("senior", accuracy, 100, 0) == {}
    assert log.add("senior", 0.9, 100, 1) == {CHANGE: 0}
    assert log.add("senior", accuracy, 100, 2) == {}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("accuracy", [0.5, 17.5, None])
def test_junior_answers_once_and_its_accuracy_stays(accuracy: float | None) -> None:
    log = ValidationLog()
    assert answerers(log, "all") == ("senior", "team", "junior")
    known = {} if accuracy is None else {JUNIOR_ALONE: accuracy}
    assert log.add("junior", accuracy, 10, 0) == known
    assert answerers(log, "all") == ("senior", "team")
    assert log.add("team", 0.25, 10, 5) == known
    assert answerers(log, "both") == ("senior", "team")


def test_resumed_run_compares_with_the_first_validation_of_all(tmp_path: Path) -> None:
    before = ValidationLog("a run", tmp_path)
    for step, senior in ((0, 0.5), (5, 0.6), (10, 0.7)):
        before.add("senior", senior, 100, step)
        before.add("team", senior / 2, 100, step)
        if step == 0:
            before.add("junior", 0.375, 100, step)
    resumed = ValidationLog("a run", tmp_path)  # from the checkpoint of step 5
    assert answerers(resumed, "all") == ("senior", "team")
    metrics = resumed.add("senior", 0.55, 100, 5)
    assert metrics == {CHANGE: pytest.approx(0.05), JUNIOR_ALONE: 0.375}
    resumed.add("team", 0.3, 100, 5)
    assert [(row.step, row.answerer, row.accuracy) for row in read_validations(tmp_path)] == [
        (0, "senior", 0.5),
        (0, "team", 0.25),
        (0, "junior", 0.375),
        (5, "senior", 0.55),
        (5, "team", 0.3),
    ]


def test_validations_of_another_run_are_neither_compared_nor_kept(tmp_path: Path) -> None:
    ValidationLog("a run", tmp_path).add("senior", 0.9, 100, 0)
    other = ValidationLog("another", tmp_path)
    assert answerers(other, "all") == ("senior", "team", "junior")
    assert other.add("senior", 0.1, 100, 0) == {CHANGE: 0}
    assert [row.run for row in read_validations(tmp_path)] == ["another"]


def test_other_processes_read_and_do_not_write(tmp_path: Path) -> None:
    ValidationLog("a run", tmp_path).add("senior", 0.5, 100, 0)
    content = (tmp_path / FILE).read_text()
    reading = ValidationLog("a run", tmp_path, writes=False)
    assert reading.add("senior", 0.75, 100, 5) == {CHANGE: 0.25}
    assert (tmp_path / FILE).read_text() == content


SOUND = {"run": "", "step": 0, "answerer": "team", "accuracy": 0.5, "problems": 3, "warning": ""}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "7",
        "[7]",
        "[{}]",
        json.dumps([{**SOUND, "more": 1}]),
        json.dumps([{**SOUND, "step": "1"}]),
        json.dumps([{**SOUND, "answerer": "referee"}]),
        json.dumps([{**SOUND, "warning": None}]),
    ],
)
def test_file_that_is_no_log_is_read_as_empty(tmp_path: Path, content: str) -> None:
    assert read_validations(tmp_path) == []
    (tmp_path / FILE).write_text(content)
    assert read_validations(tmp_path) == []
    (tmp_path / FILE).write_text(json.dumps([SOUND]))
    assert read_validations(tmp_path) == [Validation("", 0, "team", 0.5, 3)]
