"""The authorship of a response that an agent loop put together."""

from __future__ import annotations

import numpy as np
import pytest
from refused import refused

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.response_authorship import Call, author_response

PROMPT = [1, 2, 3]


@pytest.fixture(scope="module")
def rule() -> Rule:
    pieces = tuple("Ġ" + chr(97 + i) if i % 3 == 0 else chr(97 + i) for i in range(24))
    config = TandemConfig.from_mapping({"schedule": "word", "cap": 4})
    return TandemRules(config, Vocabulary(pieces, "a test")).default


def tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 24, count).tolist()


def test_single_call_is_its_replay(rule: Rule) -> None:
    generated = tokens(40)
    calls = [Call(rule, 5, tuple(PROMPT), tuple(generated))]
    authored = author_response(calls, PROMPT, generated, [1] * 40)
    assert authored.senior.tolist() == list(rule.replay(generated, 5))
    assert authored.segments == ((5, 0, 40),)


@pytest.mark.parametrize("length", [0, 1, 17, 40])
def test_truncated_response_keeps_the_first_authors(rule: Rule, length: int) -> None:
    generated = tokens(40)
    calls = [Call(rule, 5, tuple(PROMPT), tuple(generated))]
    authored = author_response(calls, PROMPT, generated[:length], [1] * length)
    assert authored.senior.tolist() == list(rule.replay(generated, 5))[:length]


def test_tool_outputs_have_no_author_and_each_call_its_own_seed(rule: Rule) -> None:
    first, tool, second = tokens(10, 1), [20, 21, 22], tokens(12, 2)
    response = first + tool + second
    mask = [1] * 10 + [0] * 3 + [1] * 12
    calls = [
        Call(rule, 5, tuple(PROMPT), tuple(first)),
        Call(rule, 6, tuple(PROMPT + first + tool), tuple(second)),
    ]
    authored = author_response(calls, PROMPT, response, mask)
    expected = [*rule.replay(first, 5), False, False, False, *rule.replay(second, 6)]
    assert authored.senior.tolist() == expected
    assert authored.segments == ((5, 0, 10), (6, 13, 25))


def test_call_that_the_loop_dropped_is_passed_over(rule: Rule) -> None:
    kept, dropped = tokens(10, 1), tokens(10, 2)
    calls = [Call(rule, 5, (9, 9), tuple(dropped)), Call(rule, 6, tuple(PROMPT), tuple(kept))]
    authored = author_response(calls, PROMPT, kept, [1] * 10)
    assert authored.segments == ((6, 0, 10),)


def test_call_cut_short_by_the_loop_keeps_its_first_authors(rule: Rule) -> None:
    generated, tool = tokens(10, 1), [23, 23]
    generated[7] = 0
    response = generated[:7] + tool
    calls = [Call(rule, 5, tuple(PROMPT), tuple(generated))]
    authored = author_response(calls, PROMPT, response, [1] * 7 + [0, 0])
    assert authored.senior.tolist() == [*list(rule.replay(generated, 5))[:7], False, False]


def test_token_that_the_loop_rewrote_is_refused(rule: Rule) -> None:
    generated = tokens(10, 1)
    response = [*generated[:6], (generated[6] + 1) % 24, *generated[7:]]
    calls = [Call(rule, 5, tuple(PROMPT), tuple(generated))]
    with refused("TP449", position=6):
        author_response(calls, PROMPT, response, [1] * 10)


def test_mask_of_another_length_is_refused(rule: Rule) -> None:
    with refused("TP447", entries=9):
        author_response([], PROMPT, tokens(10), [0] * 9)
