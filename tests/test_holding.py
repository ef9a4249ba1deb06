"""How often drafts hold, and the tokens of a round: against simulated rounds of known authors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from tandem_plugin.engine.speculative.holding import Holding, expected_tokens

MOST = 8


def authors(p: float, redraws: float, rng: random.Random) -> Iterator[bool]:
    """Who writes each token: True for the senior; drawn anew behind a share of tokens."""
    author = rng.random() < p
    while True:
        yield author
        if rng.random() < redraws:
            author = rng.random() < p


def rounds(
    drafts: Callable[[], int], p: float, redraws: float, accepted: float, rng: random.Random
) -> Iterator[tuple[int, int]]:
    """Drafts and tokens of round after round of one endless response."""
    writes = authors(p, redraws, rng)
    waiting = [next(writes)]
    while True:
        k, written, rejected = drafts(), 0, False
        while written < k and not rejected:
            rejected = waiting[0] and rng.random() >= accepted
            waiting = [next(writes)]
            written += 1
        if not rejected and (waiting[0] or not k):  # the senior's, or a token without drafts
            waiting = [next(writes)]
            written += 1
        yield k, written


@pytest.mark.parametrize("p", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("redraws", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("accepted", [0.5, 0.95])
def test_expected_tokens_are_those_of_the_rounds_whatever_the_runs(
    p: float, redraws: float, accepted: float
) -> None:
    for k in (1, 2, 4, 8):
        rng = random.Random(k)
        holding, total, promised = Holding(MOST), 0, []
        simulated = islice(rounds(lambda k=k: k, p, redraws, accepted, rng), 12_000)  # type: ignore[misc]
        for number, (drafted, written) in enumerate(simulated):
            holding.observe(drafted, written)
            if number >= 2_000:
                total += written
                if number % 100 == 0:
                    promised.append(holding.tokens(k))
        assert sum(promised) / len(promised) == pytest.approx(total / 10_000, rel=0.04), k


def test_tokens_of_other_lengths_follow_from_rounds_of_one() -> None:
    rng = random.Random(3)
    holding = Holding(MOST)
    for drafted, written in islice(rounds(lambda: 4, 0.5, 0.3, 0.9, rng), 20_000):
        holding.observe(drafted, written)
    for k in (1, 2, 8):
        found = [
            written for _, written in islice(rounds(lambda k=k: k, 0.5, 0.3, 0.9, rng), 20_000)
        ]  # type: ignore[misc]
        assert holding.tokens(k) == pytest.approx(sum(found) / len(found), rel=0.1), k


def test_expected_tokens_are_the_sum_over_where_a_chain_ends() -> None:
    assert expected_tokens([], 0.5) == 1.0
    assert expected_tokens([0.5], 0.4) == pytest.approx(1 + 0.4 * 0.5)
    # Rejected at the first, at the second, not at all.
    ends = 0.1 * 1 + 0.9 * 0.2 * 2 + 0.9 * 0.8 * (2 + 0.3)
    assert expected_tokens([0.9, 0.8], 0.3) == pytest.approx(ends)


def test_many_rounds_at_once_are_the_same_as_one_by_one() -> None:
    one, all_at_once = Holding(4), Holding(4)
    for drafted, written, count in [(4, 5, 3), (4, 2, 2), (2, 2, 5), (2, 1, 1), (0, 1, 7)]:
        for _ in range(count):
            one.observe(drafted, written)
        all_at_once.observe(drafted, written, count)
    for k in range(5):
        assert all_at_once.tokens(k) == pytest.approx(one.tokens(k), rel=0.01)


def test_a_policy_that_drifts_is_followed() -> None:
    rng, holding = random.Random(4), Holding(MOST)
    for accepted in (0.99, 0.2):
        for drafted, written in islice(rounds(lambda: MOST, 1.0, 1.0, accepted, rng), 8_000):
            holding.observe(drafted, written)
    assert holding.tokens(MOST) == pytest.approx(1 / 0.8, rel=0.1)
