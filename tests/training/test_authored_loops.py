"""Agent loops of every kind, over few different tokens, against what is known of who wrote what.

The vocabulary is so small that calls agree with each other, and with what stands in the text after
a shorter one, all the time by accident.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refused

from tandem_plugin import Rule, TandemConfig, TandemRules, Vocabulary
from tandem_plugin.training.response_authorship import Call, author_response

PIECES = ("Ġa", "b", "Ġc")


def rule_of(schedule: str) -> Rule:
    config = TandemConfig.from_mapping({"schedule": schedule})
    return TandemRules(config, Vocabulary(PIECES, "a test")).default


RULES = [rule_of("word"), rule_of("token")]


@dataclass
class Loop:
    """An agent loop's text, of which every token knows the call that wrote it, if one did."""

    prompt: list[int]
    text: list[int] = field(default_factory=list)
    writers: list[tuple[int, int] | None] = field(default_factory=list)
    """(number of the call, place in its tokens) of each response token."""
    mask: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """Under the first of the rules; :func:`under` has them under another one."""
    starts: list[int] = field(default_factory=lambda: [0])
    """Where in the text turns began."""

    def generate(self, tokens: list[int], context: int) -> int:
        """A call on the first tokens of the text; its number."""
        sent = [*self.prompt, *self.text[:context]]
        self.calls.append(Call(RULES[0], 1000 + len(self.calls), sent, tokens))
        return len(self.calls) - 1

    def keep(self, call: int, tokens: int, masked: frozenset[int]) -> None:
        """Go on with the first tokens of a call, some of them masked."""
        self.starts.append(len(self.text))
        for place, token in enumerate(self.calls[call].token_ids[:tokens].tolist()):
            self.text.append(token)
            self.writers.append((call, place))
            self.mask.append(int(place not in masked))

    def feed(self, tokens: list[int]) -> None:
        """Go on with a tool's output."""
        self.text += tokens
        self.writers += [None] * len(tokens)
        self.mask += [0] * len(tokens)


def under(rule: Rule, calls: list[Call]) -> list[Call]:
    return [Call(rule, call.seed, call.prompt_ids, call.token_ids) for call in calls]


@st.composite
def loops(draw: st.DrawFn) -> Loop:
    token = st.integers(0, draw(st.integers(0, 2)))
    loop = Loop(draw(st.lists(token, max_size=2)))
    for _ in range(draw(st.integers(1, 3))):
        samples = draw(st.lists(st.lists(token, max_size=6), min_size=1, max_size=3))
        numbers = [loop.generate(sample, len(loop.text)) for sample in samples]
        for _ in range(draw(st.integers(0, 1))):  # one that went on from somewhere else
            loop.generate(draw(st.lists(token, max_size=6)), draw(st.integers(0, len(loop.text))))
        kept = draw(st.sampled_from(numbers))
        masked = draw(st.frozensets(st.integers(0, 5), max_size=2))
        loop.keep(kept, draw(st.integers(0, 6)), masked)
        loop.feed(draw(st.lists(token, max_size=2)))
    for _ in range(draw(st.integers(0, 1))):  # a branch that was dropped whole
        loop.generate(draw(st.lists(token, max_size=6)), draw(st.integers(0, len(loop.text))))
    return loop


def explained(
    text: tuple[int, ...], trained: tuple[bool, ...], calls: list[Call], senior: list[list[bool]]
) -> set[tuple[bool, ...]]:
    """The authors of the trained tokens by every explanation, all of them walked through."""

    @cache
    def rest(place: int) -> frozenset[tuple[bool, ...]]:
        if place == len(text):
            return frozenset([()])
        found: set[tuple[bool, ...]] = set() if trained[place] else set(rest(place + 1))
        for call, authors in zip(calls, senior, strict=True):
            if tuple(call.prompt_ids.tolist()) != text[:place]:
                continue
            written: tuple[bool, ...] = ()
            for i, token in enumerate(call.token_ids.tolist()):
                if place + i == len(text) or text[place + i] != token:
                    break
                written += (authors[i],) if trained[place + i] else ()
                found |= {written + after for after in rest(place + i + 1)}
        return frozenset(found)

    return set(rest(0))


@settings(max_examples=300, deadline=None)
@given(loop=loops(), data=st.data())
def test_authors_are_those_of_the_calls_that_wrote_and_unknown_where_explanations_differ(
    loop: Loop, data: st.DataObject
) -> None:
    rule = data.draw(st.sampled_from(RULES))
    gathered = data.draw(st.permutations(under(rule, loop.calls)))
    begin = data.draw(st.sampled_from(loop.starts))  # where an output of its own begins
    stop = data.draw(st.integers(begin, len(loop.text)))  # what the trainer cuts off
    prompt, response = [*loop.prompt, *loop.text[:begin]], loop.text[begin:stop]
    mask = loop.mask[begin:stop]
    replayed = [rule.replay(call.token_ids.tolist(), call.seed).tolist() for call in gathered]
    trained = tuple([False] * len(prompt) + [bool(bit) for bit in mask])
    explanations = explained((*prompt, *response), trained, gathered, replayed)
    authored = author_response(gathered, prompt, response, mask)
    numbers = {call.seed: i for i, call in enumerate(gathered)}
    truth = [
        replayed[numbers[loop.calls[writer[0]].seed]][writer[1]]
        for writer, bit in zip(loop.writers[begin:stop], mask, strict=True)
        if bit and writer
    ]
    bits = np.array(mask, dtype=bool)
    unknown = [len(set(authors)) > 1 for authors in zip(*explanations, strict=True)]
    assert authored.unknown[bits].tolist() == unknown
    assert not authored.unknown[~bits].any()
    senior = authored.senior[bits].tolist()
    assert tuple(senior) in explanations
    assert tuple(truth) in explanations
    found = zip(senior, truth, unknown, strict=True)
    assert all(ours == written or is_open for ours, written, is_open in found)
    check_segments(rule, authored.senior, authored.segments, response, mask)


def check_segments(
    rule: Rule,
    senior: np.ndarray,
    segments: tuple[tuple[int, int, int], ...],
    response: list[int],
    mask: list[int],
) -> None:
    rest = senior.copy()
    written = np.zeros(len(response), dtype=bool)
    for seed, start, stop in segments:
        assert (
            rule.replay(response[start:stop], seed).senior.tolist() == senior[start:stop].tolist()
        )
        assert mask[stop - 1]
        rest[start:stop], written[start:stop] = False, True
    assert not rest.any()
    assert all(written[np.array(mask, dtype=bool)])
    assert all(stop <= start for (_, _, stop), (_, start, _) in pairwise(segments))


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
