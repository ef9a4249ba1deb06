"""The draft length that follows the load: against simulated rounds on machines of known costs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem_plugin.engine.speculative.draft_length import DraftLength, lengths_up_to
from tandem_plugin.engine.speculative.holding import expected_tokens

MOST = 8
Machine = Callable[[int, int], float]
"""Seconds of a step, by the batch and the number of drafts."""


def machine(free: float, cost: float, launch: float = 0.0) -> Machine:
    """One that reads ``free`` tokens in the time of the weights, and takes a while to start."""

    def pass_over(tokens: int) -> float:
        return launch + max(1.0, tokens / free)

    def seconds(requests: int, drafts: int) -> float:
        if not drafts:
            return (1 + cost) * pass_over(requests)
        first, others = pass_over(2 * requests), (drafts - 1) * pass_over(requests)
        return pass_over(requests * (drafts + 1)) + cost * (first + others)

    return seconds


def run(
    length: DraftLength, on: Machine, requests: int, s: float, steps: int, seed: int = 0
) -> tuple[float, float]:
    """Tokens and seconds of an engine whose drafts hold with probability s, b = 0.5."""
    rng = random.Random(seed)
    tokens, seconds, before = 0, 0.0, -1
    for _ in range(steps):
        k = length.choose(requests)
        for _ in range(requests):
            held = next((i for i in range(k) if rng.random() >= s), k)
            written = 1 if not k else min(held + 1, k) + (held == k and rng.random() < 0.5)
            length.observe(k, written)
            tokens += written
        taken = on(requests, k) * rng.choice([1.0, 1.0, 1.0, 1.1, 3.0])
        seconds += on(requests, k)
        if k == before:
            length.time(requests, k, taken)
        before = k
    return tokens, seconds


def speed(on: Machine, requests: int, s: float, k: int) -> float:
    """Tokens of a request for a second, by the expectation."""
    return expected_tokens([s] * k, 0.5) / on(requests, k)


MACHINES = {
    "weights": machine(1e9, 0.17),
    "equal sizes": machine(1e9, 1.0),
    "launches": machine(1e9, 0.17, launch=0.5),
    "arithmetic": machine(16, 0.17),
    "arithmetic, equal sizes": machine(16, 1.0),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("s", [0.3, 0.8, 0.975])
@pytest.mark.parametrize("requests", [1, 64])
def test_the_length_is_the_best_of_the_machine_at_every_batch_size(
    name: str, s: float, requests: int
) -> None:
    """Though the guess it begins with is of another machine; within the noise of its rates."""
    on, length = MACHINES[name], DraftLength(MOST, 0.5)
    run(length, on, requests, s, 2_000 if requests == 1 else 150)
    speeds = {k: speed(on, requests, s, k) for k in length.lengths}
    assert speeds[length.best(requests)] >= 0.93 * max(speeds.values()), (
        length.best(requests),
        speeds,
    )


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("s", [0.3, 0.975])
@pytest.mark.parametrize("requests", [1, 64])
def test_following_is_about_as_fast_as_never_drafting_and_as_any_fixed_length(
    name: str, s: float, requests: int
) -> None:
    """What is looked at in between included, once every length was."""
    on, length = MACHINES[name], DraftLength(MOST, 0.5)
    run(length, on, requests, s, 1_000 if requests == 1 else 100)
    tokens, seconds = run(length, on, requests, s, 2_000 if requests == 1 else 200, seed=1)
    fastest = max(speed(on, requests, s, k) for k in length.lengths)
    assert tokens / seconds / requests >= 0.97 * fastest


def test_nothing_is_drafted_where_a_pass_is_bound_by_arithmetic() -> None:
    """Lockstep's passes over b tokens each, against the senior's over b (k + 1)."""
    on, length = MACHINES["arithmetic, equal sizes"], DraftLength(4, 1.0)
    run(length, on, 256, 0.975, 60)
    assert length.best(256) == 0
    run(length, on, 1, 0.975, 1_000)
    assert length.best(1) == 4
    assert length.best(256) == 0  # what one batch size costs says nothing of another


def test_nothing_is_drafted_by_the_guess_alone_where_batches_are_large() -> None:
    length = DraftLength(4, 1.0)
    assert length.best(1) == 4
    assert length.best(4096) == 0


def test_length_follows_a_policy_that_drifts_and_comes_back() -> None:
    on, length = MACHINES["weights"], DraftLength(MOST, 1 / 6)
    run(length, on, 4, 0.99, 1_000)
    assert length.best(4) == MOST
    run(length, on, 4, 0.1, 2_000)
    assert length.best(4) <= 1
    run(length, on, 4, 0.99, 3_000)
    assert length.best(4) == MOST


@given(st.integers(1, 300), st.integers(0, 20))
@settings(deadline=None)
def test_no_length_is_taken_or_looked_at_that_a_step_has_no_room_for(
    requests: int, alone: int
) -> None:
    """Though it would be the best of the machine; where there is room again, it is."""
    on, tokens = MACHINES["weights"], 512
    length = DraftLength(MOST, 1 / 6, lambda n: tokens // n - 2)
    fitting = [k for k in length.lengths if k == 0 or requests * (k + 2) <= tokens]
    for _ in range(alone):  # a look at another size may have begun, at any length
        length.choose(1)
    before = -1
    for _ in range(250):
        k = length.choose(requests)
        assert k in fitting
        length.observe(k, k + 1)
        if k == before:
            length.time(requests, k, on(requests, k))
        before = k
    assert length.best(requests) == fitting[-1]
    assert length.knows(requests)
    assert length.best(1) == MOST


def test_a_look_at_a_length_ends_where_a_step_has_no_room_for_it_any_more() -> None:
    room = MOST
    length = DraftLength(MOST, 1 / 6, lambda _: room)
    while (looked_at := length.choose(16)) == length.best(16):
        pass
    assert looked_at == 0
    while (looked_at := length.choose(16)) != 4:
        length.time(16, looked_at, 1.0)
    room = 2
    assert all(length.choose(16) <= 2 for _ in range(100))


def test_a_length_that_is_never_timed_is_looked_at_ever_more_rarely() -> None:
    """As in responses shorter than a few of its rounds, or where prompts are read at every step."""
    on, length = MACHINES["arithmetic, equal sizes"], DraftLength(MOST, 1.0)
    chosen = []
    for _ in range(4_000):
        chosen.append(k := length.choose(64))
        length.observe(k, k + 1)
        if k != MOST:
            length.time(64, k, on(64, k))
    assert length.best(64) == 0
    assert not length.knows(64)
    looks = [step for step in range(1, len(chosen)) if chosen[step - 1] != MOST == chosen[step]]
    assert 4 <= len(looks) <= 10
    gaps = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 1_000


def test_lengths_are_few() -> None:
    assert lengths_up_to(1) == (0, 1)
    assert lengths_up_to(2) == (0, 1, 2)
    assert lengths_up_to(4) == (0, 1, 2, 4)
    assert lengths_up_to(6) == (0, 1, 2, 4, 6)
    assert lengths_up_to(32) == (0, 1, 2, 4, 8, 16, 32)


@given(
    st.integers(1, 32),
    st.floats(0.001, 4),
    st.lists(
        st.tuples(
            st.integers(0, 32), st.integers(0, 33), st.integers(1, 2000), st.floats(0, 100)
        ),
        max_size=100,
    ),
)  # fmt: skip
def test_length_is_one_of_those_there_are_whatever_is_seen(
    most: int, cost: float, steps: list[tuple[int, int, int, float]]
) -> None:
    length = DraftLength(most, cost)
    for drafted, written, requests, seconds in steps:
        length.observe(drafted, min(written, drafted + 1))
        length.time(requests, drafted, seconds)
        assert length.choose(requests) in length.lengths
        assert length.best(requests) in length.lengths
