"""The trainer's metrics: of rows against a plain loop, of engines' counters by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import philox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.engine.wire import DraftStats, MeasureSums
from tandem_plugin.grading.rewards.verl_reward import compute_score
from tandem_plugin.training.authorship_wire import ResponseAuthorship, ranges_of
from tandem_plugin.training.metrics import (
    EngineLog,
    batch_metrics,
    grading_metrics,
    metrics_together,
)
from tandem_plugin.training.rows import Row

BITS = st.lists(st.booleans(), min_size=1, max_size=12)
Segments = list[tuple[int, int, int]]


def row(authorship: list[bool], segments: Segments | None = None) -> Row:
    bits = np.array(authorship, dtype=bool)
    every = tuple([(0, 0, len(bits))] if segments is None else segments)
    facts = ResponseAuthorship("f", {}, 0, len(bits), every, tuple(ranges_of(bits)), ())
    return Row("row", "g", np.zeros(len(bits), dtype=np.int64), bits, facts)


def by_hand(rows: list[tuple[list[bool], Segments]]) -> dict[str, float]:
    senior = tokens = spans = juniors = handoffs = without = 0
    for authorship, segments in rows:
        seniors = 0
        for _, start, stop in segments:
            previous = None
            for author in authorship[start:stop]:
                tokens += 1
                seniors += author
                spans += author != previous
                juniors += author != previous and not author
                handoffs += previous is not None and author != previous
                previous = author
        senior += seniors
        without += seniors == 0
    return {
        "tandem/senior_share": senior / tokens,
        "tandem/spans_per_response": spans / len(rows),
        "tandem/handoffs_per_response": handoffs / len(rows),
        "tandem/junior_spans_per_response": juniors / len(rows),
        **({"tandem/tokens_per_junior_span": (tokens - senior) / juniors} if juniors else {}),
        "tandem/responses_without_senior": without,
        "tandem/prompts_without_senior": float(senior == 0),  # all rows answer one prompt
        "tandem/tokens_of_unknown_author": 0,
    }


@given(st.lists(st.tuples(BITS, st.integers(0, 3), BITS), min_size=1, max_size=6))
def test_equals_a_plain_loop(batch: list[tuple[list[bool], int, list[bool]]]) -> None:
    """A tool's output between two calls ends a span and is no handoff."""
    rows = []
    for first, tool, second in batch:
        start = len(first) + tool
        bits = [*first, *[False] * tool, *second]
        calls = [(0, 0, len(first)), (1, start, len(bits))] if tool else [(0, 0, len(bits))]
        rows.append((bits, calls))
    assert batch_metrics([row(*one) for one in rows]) == pytest.approx(by_hand(rows))


def test_responses_alone_are_counted_apart_from_those_of_both() -> None:
    """By their seeds: a response that the senior happened to write alone is not one of them."""
    seeds = {philox.response_draw(seed) < 0.5: seed for seed in range(20)}

    def of(seed: int, *bits: bool) -> Row:
        one = row(list(bits), [(seed, 0, len(bits))])
        assert one.facts is not None
        return replace(one, facts=replace(one.facts, settings={"alone": 0.5}))

    rows = [of(seeds[True], True, True), of(seeds[False], True), of(seeds[False], False, True)]
    metrics = batch_metrics(rows)
    assert metrics["tandem/alone_share"] == pytest.approx(1 / 3)
    assert metrics["tandem/senior_share_together"] == pytest.approx(2 / 3)
    assert metrics["tandem/spans_per_response_together"] == pytest.approx(3 / 2)
    assert metrics["tandem/senior_share"] == pytest.approx(4 / 5)
    assert batch_metrics([rows[0]])["tandem/alone_share"] == 1
    assert "tandem/alone_share" not in batch_metrics([row([True, False])])


def test_prompts_are_counted_by_what_is_trained_of_their_responses() -> None:
    def of_group(group: str, *bits: bool) -> Row:
        return replace(row(list(bits)), group=group)

    masked = replace(of_group("c", True), response_mask=np.zeros(1, dtype=bool))
    rows = [of_group("a", False), of_group("b", False), of_group("a", True), masked]
    assert batch_metrics(rows)["tandem/prompts_without_senior"] == 2


def graded(columns: Mapping[str, Any]) -> Mapping[str, float]:
    """The outcome of grading in a row that was received with these columns."""
    return Row.received("Row 0", "a", np.zeros(1, np.int64), np.ones(1, np.bool_), columns).graded


def test_outcomes_of_tandems_reward_are_shares_and_another_has_none() -> None:
    responses = [r"\boxed{5}", r"\boxed{5}", r"\boxed{6}", "none"]
    rewards = [graded({"reward_extra_info": compute_score("s", text, "5")}) for text in responses]
    assert grading_metrics([replace(row([True]), graded=one) for one in rewards]) == {
        "grading/copied": 0.0,
        "grading/correct": 0.5,
        "grading/error": 0.0,
        "grading/incorrect": 0.25,
        "grading/no_answer": 0.25,
        "grading/timeout": 0.0,
    }
    assert graded({"reward_extra_info": {"acc": 1.0, "score": 1.0}}) == graded({}) == {}
    assert grading_metrics([row([True])]) == {}


DRAFTS = [DraftStats(10, 40, 42, 20, 19, 18), DraftStats(5, 10, 8, 10, 5, 1)]
SUMS = [
    MeasureSums(10.0, 4.0, 9.0, 3.0, 1.0, 8.0, 2.0),
    MeasureSums(30.0, 6.0, 29.0, 5.0, 2.0, 2.0, 3.0),
]
BOTH = [
    pytest.param(
        DRAFTS,
        {"draft_acceptance": 24 / 30, "tokens_per_round": 50 / 15, "forwards_per_token": 65 / 50},
        {"draft_acceptance": 5 / 10, "tokens_per_round": 8 / 5, "forwards_per_token": 15 / 8},
        id="drafts",
    ),
    pytest.param(
        SUMS,
        {
            "junior_cross_entropy": 10 / 40,
            "overlap": 38 / 40,
            "senior_entropy": 8 / 40,
            "kl_to_junior": 3 / 40,
            "senior_cross_entropy": 5 / 10,
        },
        {
            "junior_cross_entropy": 6 / 30,
            "overlap": 29 / 30,
            "senior_entropy": 5 / 30,
            "kl_to_junior": 2 / 30,
            "senior_cross_entropy": 3 / 2,
        },
        id="measures",
    ),
]


def named(metrics: dict[str, float]) -> Any:
    return pytest.approx({f"tandem/{name}": value for name, value in metrics.items()})


@pytest.mark.parametrize(("counted", "together", "other"), BOTH)
def test_engines_metrics_are_those_of_what_came_since_the_last_step(
    counted: list[Any], together: dict[str, float], other: dict[str, float]
) -> None:
    first, second = counted
    log = EngineLog(type(first))
    assert log.step([first.to_row(), second.to_row()]) == named(together)
    assert log.step([(first + second).to_row(), second.to_row()]) == named(other)
    assert log.step([(first + second).to_row(), second.to_row()]) == {}
    # An engine that was started anew counts from nothing.
    assert log.step([second.to_row(), second.to_row()]) == named(other)
    # Another number of engines: each counts from nothing.
    assert log.step([second.to_row()]) == named(other)
    assert log.step([first.to_row(), second.to_row()]) == named(together)


def test_a_rate_of_nothing_is_left_out() -> None:
    juniors_alone = DraftStats(rounds=1, drafts=4, tokens=4)
    assert EngineLog(DraftStats).step([juniors_alone.to_row()]) == named(
        {"tokens_per_round": 4.0, "forwards_per_token": 1.25}
    )


def test_a_response_is_the_seniors_alone_if_each_of_its_calls_is() -> None:
    """A later call has a seed of its own, and so a draw of its own."""
    share = 0.5
    alone, team = (
        next(seed for seed in range(100) if (philox.response_draw(seed) < share) is whether)
        for whether in (True, False)
    )

    def of_calls(*seeds: int) -> Row:
        made = row(
            [True, False] * len(seeds), [(seed, 2 * i, 2 * i + 2) for i, seed in enumerate(seeds)]
        )
        assert made.facts is not None
        return replace(made, facts=replace(made.facts, settings={"alone": share}))

    rows = [of_calls(alone, alone), of_calls(alone, team), of_calls(team, alone), of_calls(team)]
    assert metrics_together(rows)["tandem/alone_share"] == 0.25
    assert metrics_together([row([True])]) == {}
