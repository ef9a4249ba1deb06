"""Responses that an agent loop put together of calls that agree with each other.

Random loops of every kind are those of test_random_loops.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from refused import refused

from tandem_plugin import TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.response_authorship import Call, author_response

PIECES = ("Ġa", "b", "Ġc")


RULE = TandemRules(TandemConfig(), Vocabulary(PIECES, "a test")).default


@pytest.mark.parametrize(
    ("prompt", "response", "mask", "code", "fields"),
    [
        ([1, 0], [1, 2], [1, 1], "TP448", {"tokens": 1}),  # it begins within a call
        ([1], [0, 1, 1], [1, 1, 1], "TP449", {"position": 2}),  # the loop rewrote a token
        ([1], [0, 1, 2], [1, 1], "TP447", {"entries": 2}),
    ],
)
def test_response_that_calls_do_not_explain_is_refused(
    prompt: list[int], response: list[int], mask: list[int], code: str, fields: dict[str, int]
) -> None:
    with refused(code, **fields):
        author_response([Call(RULE, 5, [1], [0, 1, 2])], prompt, response, mask)


def turns(count: int, length: int) -> Iterator[tuple[Call, list[int]]]:
    """A long trajectory: turns of random tokens, each answered by two tokens of a tool."""
    rng = np.random.default_rng(0)
    text = [0]
    for turn in range(count):
        tokens = rng.integers(0, 3, length).tolist()
        yield Call(RULE, turn, text, tokens), tokens
        text = [*text, *tokens, 1, 1]


def test_every_turn_of_a_long_trajectory_is_its_own_calls() -> None:
    """A thousand turns with a dropped sample each, 30,000 tokens."""
    calls, response, mask = [], [], []
    for call, tokens in turns(1000, 28):
        other = [*tokens[:9], 2 - tokens[9]]
        calls += [call, Call(call.rule, call.seed + 5000, call.prompt_ids, other)]
        response += [*tokens, 1, 1]
        mask += [1] * len(tokens) + [0, 0]
    authored = author_response(calls[::-1], [0], response, mask)
    assert [seed for seed, _, _ in authored.segments] == list(range(1000))
