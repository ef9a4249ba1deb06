"""The trainer's metrics of its engines: counters that only grow, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tandem_plugin.engine.measures import MeasureSums
from tandem_plugin.engine.speculative.draft_stats import DraftStats
from tandem_plugin.training.metrics import EngineLog

DRAFTS = [DraftStats(10, 40, 42, 20, 19, 18), DraftStats(5, 10, 8, 10, 5, 1)]
SUMS = [MeasureSums(10.0, 4.0, 9.0, 8.0, 2.0), MeasureSums(30.0, 6.0, 29.0, 2.0, 3.0)]
BOTH = [
    pytest.param(
        DRAFTS,
        {"draft_acceptance": 24 / 30, "tokens_per_round": 50 / 15, "forwards_per_token": 65 / 50},
        {"draft_acceptance": 5 / 10, "tokens_per_round": 8 / 5, "forwards_per_token": 15 / 8},
        id="drafts",
    ),
    pytest.param(
        SUMS,
        {"junior_cross_entropy": 10 / 40, "overlap": 38 / 40, "senior_cross_entropy": 5 / 10},
        {"junior_cross_entropy": 6 / 30, "overlap": 29 / 30, "senior_cross_entropy": 3 / 2},
        id="measures",
    ),
]


def named(metrics: dict[str, float]) -> Any:
    return pytest.approx({f"tandem/{name}": value for name, value in metrics.items()})


@pytest.mark.parametrize(("counted", "together", "other"), BOTH)
def test_metrics_are_those_of_what_came_since_the_last_step_over_all_engines(
    counted: list[Any], together: dict[str, float], other: dict[str, float]
) -> None:
    first, second = counted
    log = EngineLog(type(first))
    assert log.step([first.to_row(), second.to_row()]) == named(together)
    assert log.step([(first + second).to_row(), second.to_row()]) == named(other)
    assert log.step([(first + second).to_row(), second.to_row()]) == {}
    # An engine that was started anew counts from nothing.
    assert log.step([second.to_row(), second.to_row()]) == named(other)


def test_a_rate_or_mean_of_nothing_is_left_out() -> None:
    juniors_alone = DraftStats(rounds=1, drafts=4, tokens=4)
    assert EngineLog(DraftStats).step([juniors_alone.to_row()]) == named(
        {"tokens_per_round": 4.0, "forwards_per_token": 1.25}
    )
    solo = MeasureSums(2.0, 1.0, 1.0)
    assert EngineLog(MeasureSums).step([solo.to_row()]) == named(
        {"junior_cross_entropy": 0.5, "overlap": 0.5}
    )


def test_measures_are_those_of_all_engines_and_of_each_juniors() -> None:
    def told(junior: str, tokens: float, entropy: float) -> dict[str, Any]:
        return {**MeasureSums(tokens, entropy, tokens / 2).to_row(), "junior": junior}

    log = EngineLog(MeasureSums, ("m/a", "m/b"))
    engines = [told("m/a", 2, 2), told("m/b", 4, 16), told("m/a", 2, 6)]
    found = log.step(engines)
    assert found["tandem/junior_cross_entropy"] == 24 / 8
    assert found["tandem/juniors/a/junior_cross_entropy"] == 8 / 4
    assert found["tandem/juniors/b/junior_cross_entropy"] == 16 / 4
    engines[2] = told("m/a", 3, 16)
    assert log.step(engines) == {
        "tandem/junior_cross_entropy": 10,
        "tandem/overlap": 0.5,
        "tandem/juniors/a/junior_cross_entropy": 10,
        "tandem/juniors/a/overlap": 0.5,
    }
    assert not any("juniors" in name for name in EngineLog(MeasureSums, ("m/a",)).step(engines))
