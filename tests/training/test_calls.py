"""What the calls of a trajectory say, and what its responses say of their authorship.

Random loops of every kind are those of test_random_loops.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.seeds import derive_seed, sample_seed
from tandem_plugin.training.authorship_wire import ResponseAuthorship, bits_of, ranges_of
from tandem_plugin.training.calls import Place, Response, Trajectory
from tandem_plugin.training.checks import check_rows
from tandem_plugin.training.rows import Row

VOCABULARY = Vocabulary(tuple("Ġa" if i % 3 == 0 else "b" for i in range(24)), "a test")
RULES = TandemRules(TandemConfig.from_mapping({"schedule": "word", "cap": 4}), VOCABULARY)
RULE = RULES.default
PROMPT, FIRST, FEEDBACK, SECOND = [1, 2], [3, 4, 6, 7, 9, 10, 12], [20, 21], [15, 16, 18, 1, 5]
RESPONSE = [*FIRST, *FEEDBACK, *SECOND]
MASK = [1] * 7 + [0] * 2 + [1] * 5
ANNEALED = {"schedule": "handover", "first": "junior", "after": 8, "steps": 4}


def two_turns(prompt: list[int] = PROMPT) -> Trajectory:
    """Two calls with feedback between them."""
    trajectory = Trajectory(RULE, lambda call: 100 + call)
    trajectory.call(prompt).returned(FIRST)
    trajectory.call([*prompt, *FIRST, *FEEDBACK]).returned(SECOND)
    return trajectory


def facts_of_two_turns() -> ResponseAuthorship:
    facts = two_turns().facts(PROMPT, RESPONSE, MASK)
    assert facts is not None
    return facts


def test_facts_name_the_runs_junior() -> None:
    rules = TandemRules(TandemConfig.from_mapping({"junior": "a/b"}), VOCABULARY)
    trajectory = Trajectory.at(rules, 3, step=0)
    facts = trajectory.facts(PROMPT, FIRST, [0] * len(FIRST))
    assert facts is not None
    assert ResponseAuthorship.from_wire(json.loads(json.dumps(facts.to_wire()))) == facts
    assert facts.junior == facts.part(0, 3).junior == "a/b"
    row = Row("r", "g", np.array(FIRST), facts.mask, facts)
    assert row.dump()["tandem_junior"] == "a/b"


@pytest.mark.parametrize("asked", [{"schedule": "junior"}, "off"])
def test_call_with_a_request_of_the_loops_own_is_refused(asked: Any) -> None:
    with refused("agent-loop-sets-tandem"):
        two_turns().call([1], {"tandem": asked})


def test_row_of_a_narrowed_response_is_admitted() -> None:
    facts = facts_of_two_turns()
    check_rows([Row("Row 0", "a prompt", np.array(RESPONSE), facts.mask, facts)], RULES)


@pytest.mark.parametrize("step", [1, 3])
def test_request_record_and_check_have_the_trainers_step(step: int) -> None:
    rules = TandemRules(TandemConfig.from_mapping(ANNEALED), VOCABULARY)
    trajectory = Trajectory.at(rules, step, step=step)
    call = trajectory.call(PROMPT)
    # The engine has the settings of the run, which do not know the step.
    chosen = rules.for_request(call.request)
    assert chosen is not None
    assert chosen.rule == rules.for_step(step)
    call.returned([5] * 9)
    facts = trajectory.facts(PROMPT, [5] * 9, [1] * 9)
    assert facts is not None
    assert facts.mask.tolist() == [place >= 8 - 2 * step for place in range(9)]
    row = Row("Row 0", "a prompt", np.array([5] * 9), facts.mask, facts)
    check_rows([row], rules)
    for settings in ({}, {**facts.settings, "training_step": 0}):
        with refused("row-rules-differ"):
            check_rows([replace(row, facts=replace(facts, settings=settings))], rules)


def test_senior_that_answers_alone_leaves_no_facts() -> None:
    trajectory = Trajectory(None, lambda call: 100)
    call = trajectory.call(PROMPT)
    assert call.request == "off"
    call.returned([5])
    assert trajectory.facts(PROMPT, [5], [1]) is None


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_segments_are_the_latest_calls_and_of_equal_ones_the_smallest_seed(
    order: tuple[int, ...],
) -> None:
    """Of the explanations of one response, the same one whichever call came first."""
    calls = [
        (7, [1], [9, 2, 3]),  # explains all of it by itself
        (5, [1, 9], [2]),
        (4, [1, 9], [2]),
        (6, [1, 9, 2], [3]),
    ]
    trajectory = Trajectory(RULE, lambda number: calls[order[number]][0])
    for number in order:
        trajectory.call(calls[number][1]).returned(calls[number][2])
    facts = trajectory.facts([1], [9, 2, 3], [0, 1, 1])
    assert facts is not None
    assert facts.segments == ((4, 1, 2), (6, 2, 3))


def test_samples_of_one_call_have_the_seeds_that_the_engine_gives_them() -> None:
    trajectory = Trajectory(RULE, lambda call: 100 + call)
    call = trajectory.call(PROMPT)
    for index in (1, 0):
        call.returned(FIRST, index)
    assert [call.seed for call in trajectory.calls] == [sample_seed(100, 1), sample_seed(100, 0)]
    assert len({call.seed for call in trajectory.calls}) == 2


def test_response_of_which_nothing_is_trained_has_the_first_calls_seed() -> None:
    facts = two_turns().facts(PROMPT, RESPONSE, [0] * 14)
    assert facts is not None
    assert (facts.seed, facts.segments, facts.mask.any()) == (100, (), False)


@pytest.mark.parametrize(
    ("prompt", "response", "mask", "code", "fields"),
    [
        ([1, 2, 3], [4, 6], [1, 1], "generate-call-cut", {"tokens": 1}),  # it begins within a call
        (
            PROMPT,
            [*FIRST[:-1], 13],
            [1] * 7,
            "trained-token-without-call",
            {"position": 6},
        ),  # the loop rewrote a token
        (PROMPT, FIRST, [1, 1], "agent-mask-length-differs", {"entries": 2}),
    ],
)
def test_response_that_calls_do_not_explain_is_refused(
    prompt: list[int], response: list[int], mask: list[int], code: str, fields: dict[str, int]
) -> None:
    with refused(code, **fields):
        two_turns().facts(prompt, response, mask)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda wire: {name: wire[name] for name in wire if name != "senior"},
        lambda wire: {**wire, "x": 1},
        lambda wire: [wire],
    ],
)
def test_facts_of_another_form_are_refused(spoil: Callable[[Any], Any]) -> None:
    with refused("authorship-fields-differ"):
        ResponseAuthorship.from_wire(spoil(facts_of_two_turns().to_wire()))


@given(start=st.integers(0, 4), stop=st.integers(0, 30))
def test_facts_of_a_part_are_those_of_a_response_that_was_cut(start: int, stop: int) -> None:
    """The prompt among the tokens, as a trainer may have them; no segment begins in it."""
    prompt = [*PROMPT, 1, 1]
    whole = two_turns(prompt).facts((), [*prompt, *RESPONSE], [0] * 4 + MASK)
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


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 40))
def test_ranges_are_the_runs_of_true(bits: list[bool], length: int) -> None:
    ranges = ranges_of(np.array(bits, dtype=bool))
    assert all(a < b for a, b in ranges)
    assert all(b < c for (_, b), (c, _) in pairwise(ranges))
    assert bits_of(ranges, length).tolist() == (bits + [False] * length)[:length]


def test_narrowed_response_trains_the_senior_and_its_log_probs_are_zero_elsewhere() -> None:
    facts, log_probs = facts_of_two_turns(), [-1.0 - place for place in range(len(RESPONSE))]
    (narrowed,) = two_turns().narrow([Response(PROMPT, RESPONSE, MASK, log_probs)])
    assert narrowed.facts == facts
    assert narrowed.mask_list == facts.mask.astype(int).tolist()
    assert 0 < sum(narrowed.mask_list) < sum(MASK)
    kept = zip(log_probs, narrowed.mask_list, strict=True)
    assert narrowed.log_probs == [value if bit else 0.0 for value, bit in kept]
    assert narrowed.columns == {"tandem": facts.to_wire()}
    assert narrowed.ranges == ranges_of(narrowed.mask)
    assert two_turns().narrow([Response(PROMPT, RESPONSE, MASK)])[0].log_probs is None
    with refused("rollout-logprobs-count-differs", log_probs=3, tokens=14):
        two_turns().narrow([Response(PROMPT, RESPONSE, MASK, [0.0] * 3)])


def test_senior_alone_keeps_what_the_loop_would_train() -> None:
    alone = Trajectory(None, lambda call: 100)
    (narrowed,) = alone.narrow([Response(PROMPT, [5, 6], [0, 1], [-1.0, -2.0])])
    assert (narrowed.mask_list, narrowed.log_probs) == ([0, 1], [-1.0, -2.0])
    assert narrowed.facts is None
    assert narrowed.columns == {}


def test_each_of_several_responses_of_a_trajectory_has_a_seed_of_its_own() -> None:
    """One that trains nothing has none of a call's; alone it has the first call's."""
    trajectory, none = two_turns(), [0] * 7
    second = [*PROMPT, *FIRST, *FEEDBACK]
    responses = [
        Response(PROMPT, FIRST, [1] * 7),
        Response(PROMPT, FIRST, none),
        Response(second, SECOND, [1] * 5),
        Response(second, SECOND, [0] * 5),
    ]
    narrowed = trajectory.narrow(responses)
    seeds = [one.facts.seed for one in narrowed if one.facts is not None]
    assert seeds == [100, 102 + 1, 101, 102 + 3]
    rows = [one.row(f"Row {number}", "a prompt") for number, one in enumerate(narrowed)]
    check_rows(rows, RULES)
    (alone,) = two_turns().narrow(responses[1:2])
    assert alone.facts is not None
    assert alone.facts.seed == 100


def test_extras_of_a_call_are_its_own_and_keep_the_loops() -> None:
    shared = {"priority": 1}
    call = two_turns().call(PROMPT, shared)
    assert call.extra_args == {"priority": 1, "tandem": call.request}
    assert shared == {"priority": 1}


def test_place_gives_each_call_a_seed_that_no_other_place_gives() -> None:
    places = [Place(phase, numbers) for phase in ("training", "validation")
              for numbers in ((3, 1), (31,), (3, "1"), ("epoch", 3, 1))]  # fmt: skip
    seeds = [place.seed(7, call) for place in places for call in range(3)]
    assert len(set(seeds)) == len(seeds)
    assert Place("training", (3, 1)).seed(7, 2) == derive_seed(7, "training", 3, 1, 2)
