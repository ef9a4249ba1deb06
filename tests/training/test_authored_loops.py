"""Responses that an agent loop put together of calls that agree with each other.

Random loops of every kind are those of test_random_loops.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from refused import refused

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.response_authorship import Call, author_response

PIECES = ("Ġa", "b", "Ġc")


def rule_of(schedule: str) -> Rule:
    config = TandemConfig.from_mapping({"schedule": schedule})
    return TandemRules(config, Vocabulary(PIECES, "a test")).default


RULES = [rule_of("word"), rule_of("token")]


def seeds_that_differ(rule: Rule, tokens: list[int]) -> tuple[int, int]:
    """Two seeds under which the first token's author is not the same."""
    by_author = {rule.replay(tokens, seed).tolist()[0]: seed for seed in range(50)}
    return by_author[True], by_author[False]


def samples_cut_where_they_agree(count: int) -> tuple[list[Call], list[int]]:
    kept, dropped = [0, 1, 2, 1, 0, 2], [0, 1, 2, 2, 2, 2]
    rule = RULES[1]
    mine, other = seeds_that_differ(rule, kept)
    return [Call(rule, mine, [1], kept), Call(rule, other, [1], dropped)], kept[:count]


def test_response_cut_where_two_samples_still_agree_is_of_unknown_author_where_theirs_differ() -> (
    None
):
    calls, response = samples_cut_where_they_agree(3)
    both = [RULES[1].replay(response, call.seed).senior for call in calls]
    for gathered in (calls, calls[::-1]):
        authored = author_response(gathered, [1], response, [1] * 3)
        assert authored.unknown.tolist() == (both[0] != both[1]).tolist()
        assert authored.unknown[0]
        assert authored.segments == ((min(call.seed for call in calls), 0, 3),)
    calls, response = samples_cut_where_they_agree(4)
    authored = author_response(calls, [1], response, [1] * 4)
    assert authored.segments[0][0] == calls[0].seed
    assert not authored.unknown.any()


def test_samples_of_the_same_tokens_and_authors_are_one() -> None:
    rule = rule_of("solo")
    calls = [Call(rule, 7, [1], [0, 1]), Call(rule, 6, [1], [0, 1])]
    for gathered in (calls, calls[::-1]):
        assert author_response(gathered, [1], [0, 1], [1, 1]).segments == ((6, 0, 2),)


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
        author_response([Call(RULES[0], 5, [1], [0, 1, 2])], prompt, response, mask)


def turns(count: int, length: int) -> Iterator[tuple[Call, list[int]]]:
    """A long trajectory: turns of random tokens, each answered by two tokens of a tool."""
    rng = np.random.default_rng(0)
    text = [0]
    for turn in range(count):
        tokens = rng.integers(0, 3, length).tolist()
        yield Call(RULES[0], turn, text, tokens), tokens
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
