"""What the calls of a trajectory say, and what its responses say of their authorship."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import (
    TandemConfig,
    TandemRequest,
    TandemRules,
    Vocabulary,
)
from tandem_plugin.training.authorship_wire import Facts, bits_of, ranges_of
from tandem_plugin.training.checks import check_rows
from tandem_plugin.training.rows import masked_log_probs, row_of
from tandem_plugin.training.trajectory import Trajectory

VOCABULARY = Vocabulary(tuple("Ġa" if i % 3 == 0 else "b" for i in range(24)), "a test")
RULES = TandemRules(TandemConfig.from_mapping({"schedule": "word", "cap": 4}), VOCABULARY)
RULE = RULES.default
PROMPT, FIRST, FEEDBACK, SECOND = [1, 2], [3, 4, 6, 7, 9, 10, 12], [20, 21], [15, 16, 18, 1, 5]


def two_turns(seed: int = 100) -> Trajectory:
    trajectory = Trajectory(RULE, lambda call: seed + call)
    trajectory.call(PROMPT).returned(FIRST)
    trajectory.call([*PROMPT, *FIRST, *FEEDBACK]).returned(SECOND)
    return trajectory


RESPONSE = [*FIRST, *FEEDBACK, *SECOND]
MASK = [1] * 7 + [0] * 2 + [1] * 5


def facts_of_two_turns(seed: int = 100) -> Facts:
    facts = two_turns(seed).facts(PROMPT, RESPONSE, MASK)
    assert facts is not None
    return facts


def test_every_call_names_the_trajectorys_junior_and_so_do_its_facts() -> None:
    trajectory = Trajectory.begin(RULES, ("training", 3), 0, junior="a/b")
    for asked in (None, {"schedule": "solo"}):
        request = TandemRequest.parse(trajectory.call(PROMPT, asked).request)
        assert request is not None
        assert request.junior == "a/b"
    facts = trajectory.facts(PROMPT, FIRST, [0] * len(FIRST))
    assert facts is not None
    assert Facts.from_wire(json.loads(json.dumps(facts.to_wire()))) == facts
    assert facts.junior == facts.part(0, 3).junior == "a/b"
    row = row_of(facts, name="r", group="g", response_ids=np.array(FIRST), response_mask=facts.mask)
    assert (row.junior, row.dump()["tandem_junior"]) == ("a/b", "a/b")
    assert facts_of_two_turns().junior is None


def test_senior_that_answers_alone_leaves_no_facts() -> None:
    trajectory = Trajectory(None, lambda call: 100)
    call = trajectory.call(PROMPT)
    assert call.request == "off"
    call.returned([5])
    assert trajectory.facts(PROMPT, [5], [1]) is None


def test_response_of_which_nothing_is_trained_has_the_first_calls_seed() -> None:
    facts = two_turns(200).facts(PROMPT, RESPONSE, [0] * 14)
    assert facts is not None
    assert (facts.seed, facts.segments, facts.mask.any()) == (200, (), False)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda wire: {name: wire[name] for name in wire if name != "senior"},
        lambda wire: {**wire, "x": 1},
        lambda wire: [wire],
    ],
)
def test_facts_of_another_form_are_refused(spoil: Callable[[Any], Any]) -> None:
    with refused("TP402"):
        Facts.from_wire(spoil(facts_of_two_turns().to_wire()))


@given(start=st.integers(0, 4), stop=st.integers(0, 30))
def test_facts_of_a_part_are_those_of_a_response_that_was_cut(start: int, stop: int) -> None:
    """The prompt among the tokens, as a trainer may have them; no segment begins in it."""
    trajectory = Trajectory(RULE, lambda call: 100 + call)
    prompt = [*PROMPT, 1, 1]
    trajectory.call(prompt).returned(FIRST)
    trajectory.call([*prompt, *FIRST, *FEEDBACK]).returned(SECOND)
    whole = trajectory.facts((), [*prompt, *RESPONSE], [0] * 4 + MASK)
    assert whole is not None
    part = whole.part(start, stop)
    assert part.length == max(min(stop, 18) - start, 0)
    for name in ("authorship", "trained_mask"):
        assert getattr(part, name).tolist() == getattr(whole, name)[start:stop].tolist()
    starts = {100: 4, 101: 13}
    assert part.segments == tuple(
        (seed, starts[seed] - start, min(last, stop) - start)
        for seed, _, last in whole.segments
        if starts[seed] < stop
    )


def seed_with_a_senior() -> int:
    return next(seed for seed in count() if facts_of_two_turns(seed).mask.any())


def test_row_of_a_narrowed_response_is_admitted_and_one_without_facts_is_not() -> None:
    facts = facts_of_two_turns(seed_with_a_senior())
    known = {
        "name": "Row 0",
        "group": "a prompt",
        "response_ids": np.array(RESPONSE),
        "response_mask": facts.mask,
    }
    check_rows([row_of(facts, **known)], RULES)
    with refused("TP406", row="Row 0"):
        check_rows([row_of(None, **known)], RULES)
    given = row_of(facts, **known, junior_mask=~facts.mask)
    assert given.junior_mask is not None
    assert given.junior_mask.tolist() == (~facts.mask).tolist()


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 40))
def test_ranges_are_the_runs_of_true(bits: list[bool], length: int) -> None:
    ranges = ranges_of(np.array(bits, dtype=bool))
    assert all(a < b for a, b in ranges)
    assert all(b < c for (_, b), (c, _) in pairwise(ranges))
    assert bits_of(ranges, length).tolist() == (bits + [False] * length)[:length]


def test_rollout_log_probs_become_zero_where_the_senior_did_not_write() -> None:
    senior = np.array([False, True, False, True])
    masked = masked_log_probs([-1.0, -2.0, -3.0, -4.0], senior)
    assert masked == [0.0, -2.0, 0.0, -4.0]
    assert masked_log_probs(None, senior) is None
    with refused("TP431", log_probs=3, tokens=4):
        masked_log_probs([0.0] * 3, senior)
