"""A senior that falls alone is reported, and chance is not."""

from __future__ import annotations

import random

import pytest

from tandem_plugin.training.senior_alone import CHANGE, SeniorAlone


def test_fall_is_reported_with_its_error_and_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    alone = SeniorAlone()
    assert alone.validated(0.44, 400) == {CHANGE: 0}
    assert alone.validated(0.52, 400) == {CHANGE: pytest.approx(0.08)}
    assert capsys.readouterr().err == ""
    assert alone.validated(0.19, 400) == {CHANGE: pytest.approx(-0.25)}
    # sqrt((0.19 * 0.81 + 0.44 * 0.56) / 400)
    said = capsys.readouterr().err
    assert "WARNING: the senior alone solves 19.0% of the validation problems, 25.0 ± 3.2" in said
    assert "tandem.alone=0.25" in said


def test_same_fall_on_few_problems_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    alone = SeniorAlone()
    alone.validated(0.5, 8)
    assert alone.validated(0.25, 8) == {CHANGE: -0.25}
    assert capsys.readouterr().err == ""


def test_senior_that_does_not_change_is_seldom_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = random.Random(3)

    def accuracy() -> float:
        return sum(rng.random() < 0.6 for _ in range(200)) / 200

    for _ in range(300):
        alone = SeniorAlone()
        alone.validated(accuracy(), 200)
        alone.validated(accuracy(), 200)
    assert 0 < capsys.readouterr().err.count("WARNING") <= 0.05 * 300


@pytest.mark.parametrize("accuracy", [None, -1.0, 17.5, float("nan")])
def test_reward_without_bounds_is_not_judged(
    accuracy: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = SeniorAlone()
    assert alone.validated(accuracy, 100) == {}
    assert alone.validated(0.9, 100) == {CHANGE: 0}
    assert alone.validated(accuracy, 100) == {}
    assert capsys.readouterr().err == ""
