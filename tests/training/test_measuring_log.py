"""The trainer's metrics of both models' reading: sums of engines that only grow, by hand."""

from __future__ import annotations

import pytest

from tandem_plugin.training.engine_metrics import MeasuringLog

FIRST = {
    "senior_tokens": 10.0, "junior_cross_entropy": 4.0, "overlap": 9.0,
    "junior_tokens": 8.0, "senior_cross_entropy": 2.0,
}  # fmt: skip
OTHER = {
    "senior_tokens": 30.0, "junior_cross_entropy": 6.0, "overlap": 29.0,
    "junior_tokens": 2.0, "senior_cross_entropy": 3.0,
}  # fmt: skip


def test_metrics_are_means_over_the_tokens_of_all_engines_since_the_last_step() -> None:
    log = MeasuringLog()
    assert log.step([FIRST, OTHER]) == {
        "tandem/junior_cross_entropy": pytest.approx(10 / 40),
        "tandem/overlap": pytest.approx(38 / 40),
        "tandem/senior_cross_entropy": pytest.approx(5 / 10),
    }
    grown = {name: total + OTHER[name] for name, total in FIRST.items()}
    assert log.step([grown, OTHER]) == {
        "tandem/junior_cross_entropy": pytest.approx(6 / 30),
        "tandem/overlap": pytest.approx(29 / 30),
        "tandem/senior_cross_entropy": pytest.approx(3 / 2),
    }


def test_a_mean_over_no_token_is_left_out() -> None:
    log = MeasuringLog()
    log.step([FIRST])
    assert log.step([FIRST]) == {}
    solo = {**FIRST, "senior_tokens": 12.0, "junior_cross_entropy": 5.0, "overlap": 10.0}
    assert log.step([solo]) == {"tandem/junior_cross_entropy": 0.5, "tandem/overlap": 0.5}


def test_an_engine_that_was_started_anew_has_sums_of_its_own() -> None:
    log = MeasuringLog()
    log.step([OTHER])
    assert log.step([FIRST])["tandem/overlap"] == pytest.approx(0.9)
