"""The trainer's metrics against a plain loop."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.grading.rewards.verl_reward import compute_score
from tandem_plugin.training.metrics import graded, grading_metrics, tandem_metrics
from tandem_plugin.training.rows import Row

BITS = st.lists(st.booleans(), min_size=1, max_size=12)


def row(authorship: list[bool], segments: list[list[int]]) -> Row:
    senior = np.array(authorship, dtype=bool)
    ids = np.zeros(len(senior), dtype=np.int64)
    return Row("row", "g", ids, senior, senior, 0, "f", segments)


def by_hand(rows: list[tuple[list[bool], list[list[int]]]]) -> dict[str, float]:
    senior = tokens = spans = handoffs = without = 0
    for authorship, segments in rows:
        seniors = 0
        for _, start, stop in segments:
            previous = None
            for author in authorship[start:stop]:
                tokens += 1
                seniors += author
                spans += author != previous
                handoffs += previous is not None and author != previous
                previous = author
        senior += seniors
        without += seniors == 0
    return {
        "tandem/senior_share": senior / tokens,
        "tandem/spans_per_response": spans / len(rows),
        "tandem/handoffs_per_response": handoffs / len(rows),
        "tandem/responses_without_senior": without,
        "tandem/prompts_without_senior": float(senior == 0),  # all rows answer one prompt
        "tandem/tokens_of_unknown_author": 0,
    }


@given(st.lists(BITS, min_size=1, max_size=6))
def test_equals_a_plain_loop(batch: list[list[bool]]) -> None:
    rows = [(bits, [[0, 0, len(bits)]]) for bits in batch]
    ours, theirs = tandem_metrics([row(*r) for r in rows]), by_hand(rows)
    assert ours.keys() == theirs.keys()
    assert all(math.isclose(ours[name], theirs[name]) for name in theirs)


@given(BITS, st.integers(1, 3), BITS)
def test_tool_output_ends_a_span_and_is_no_handoff(
    first: list[bool], tool: int, second: list[bool]
) -> None:
    start = len(first) + tool
    bits = [*first, *[False] * tool, *second]
    segments = [[0, 0, len(first)], [1, start, len(bits)]]
    ours, theirs = tandem_metrics([row(bits, segments)]), by_hand([(bits, segments)])
    assert all(math.isclose(ours[name], theirs[name]) for name in theirs)


def test_prompts_are_counted_by_what_is_trained_of_their_responses() -> None:
    def of_group(group: str, *bits: bool) -> Row:
        return dataclasses.replace(row(list(bits), [[0, 0, len(bits)]]), group=group)

    masked = dataclasses.replace(of_group("c", True), response_mask=np.zeros(1, dtype=bool))
    rows = [of_group("a", False), of_group("b", False), of_group("a", True), masked]
    assert tandem_metrics(rows)["tandem/prompts_without_senior"] == 2


def test_empty_batch_has_none() -> None:
    assert tandem_metrics([]) == {}


def test_outcomes_of_tandems_reward_are_shares() -> None:
    responses = [r"\boxed{5}", r"\boxed{5}", r"\boxed{6}", "none"]
    rows = [
        dataclasses.replace(
            row([True], [[0, 0, 1]]), graded=graded(compute_score("s", response, "5"))
        )
        for response in responses
    ]
    assert grading_metrics(rows) == {
        "grading/copied": 0.0,
        "grading/correct": 0.5,
        "grading/error": 0.0,
        "grading/incorrect": 0.25,
        "grading/no_answer": 0.25,
        "grading/timeout": 0.0,
    }


def test_another_reward_has_no_outcomes() -> None:
    assert graded({"acc": 1.0, "score": 1.0}) == graded(None) == {}
    assert grading_metrics([row([True], [[0, 0, 1]])]) == {}
