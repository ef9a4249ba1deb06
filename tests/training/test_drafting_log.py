"""The trainer's metrics of drafting: counters of engines that only grow, by hand."""

from __future__ import annotations

import pytest

from tandem_plugin.engine.speculative.draft_stats import DraftStats
from tandem_plugin.training.engine_metrics import DraftingLog

FIRST = {
    "rounds": 10, "drafts": 40, "tokens": 42,
    "senior_drafts": 20, "senior_accepted": 19, "junior_drafts": 18,
}  # fmt: skip
OTHER = {
    "rounds": 5, "drafts": 10, "tokens": 8,
    "senior_drafts": 10, "senior_accepted": 5, "junior_drafts": 1,
}  # fmt: skip


def test_metrics_are_those_of_what_came_since_the_last_step_over_all_engines() -> None:
    log = DraftingLog()
    assert log.step([FIRST, OTHER]) == {
        "tandem/draft_acceptance": pytest.approx(24 / 30),
        "tandem/tokens_per_round": pytest.approx(50 / 15),
        "tandem/forwards_per_token": pytest.approx(65 / 50),
    }
    grown = {name: count + OTHER[name] for name, count in FIRST.items()}
    assert log.step([grown, OTHER]) == {
        "tandem/draft_acceptance": pytest.approx(5 / 10),
        "tandem/tokens_per_round": pytest.approx(8 / 5),
        "tandem/forwards_per_token": pytest.approx(15 / 8),
    }


def test_a_rate_of_nothing_is_left_out() -> None:
    log = DraftingLog()
    assert log.step([dict.fromkeys(FIRST, 0)]) == {}
    juniors_alone = {**dict.fromkeys(FIRST, 0), "rounds": 1, "drafts": 4, "tokens": 4}
    assert log.step([juniors_alone]) == {
        "tandem/tokens_per_round": 4.0,
        "tandem/forwards_per_token": 1.25,
    }


def test_an_engine_that_was_started_anew_counts_from_nothing() -> None:
    log = DraftingLog()
    log.step([FIRST])
    assert log.step([OTHER])["tandem/draft_acceptance"] == pytest.approx(0.5)
    assert DraftStats(**OTHER).since(DraftStats(**FIRST)) == DraftStats(**OTHER)
    assert DraftStats(**FIRST).since(DraftStats(**FIRST)) == DraftStats()
    assert DraftStats(**FIRST) + DraftStats(**OTHER) == DraftStats(15, 50, 50, 30, 24, 19)
