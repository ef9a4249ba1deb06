r"""The response in the text that OpenRLHF's reward function gets: prompt and response, decoded.

Decoding is not the inverse of encoding: special tokens eat blanks, normalisers change characters,
unknown ones are lost, and a long prompt is cut off at its left. A run in tandem knows which tokens
are the response (:data:`GENERATED`). Elsewhere the end of the prompt is found by its letters and
digits alone, from the beginning of the text on: what a prompt says about ``\boxed`` is never taken
for a response.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

_UNKNOWN = re.compile(r"[<\[]\|?unk(?:nown)?\|?[>\]]", re.IGNORECASE)
_END = re.compile(
    r"(?:\s*(?:</s>|<eos>|<pad>|<end_of_turn>|<\|\w{1,40}\|>|<\uff5c[\w\u2581]{1,40}\uff5c>"
    r"|\[(?:SEP|EOS|PAD)\]))+\s*\Z"
)
"""The special tokens that end a response, looked for in its last characters."""
_LAST = 400
_PROBE = 8
"""How many equal letters show that two texts run together again; fewer at the very end."""
_LEAST_PROBE = 4
_START = 16
"""How many show where in a prompt a text begins whose left was cut off."""
_MOST_STARTS = 64
_SKIPPED = 48
"""The letters that may be lost, or added, in one place."""
_LEAST_KEPT = 0.7
"""The share of a prompt's letters that must be found."""


@dataclass(slots=True)
class Generated:
    """The tokens of an engine's last call in one response, and the tokenizer that decodes them."""

    tokenizer: Any
    prompt_ids: Sequence[int] = ()
    response_ids: Sequence[int] = ()

    def response_in(self, query: str) -> str | None:
        """The response, if a query is the text of this call; without special tokens."""
        whole = [*self.prompt_ids, *self.response_ids]
        if self.tokenizer.decode(whole, skip_special_tokens=False) != query:
            return None
        text: str = self.tokenizer.decode(list(self.response_ids), skip_special_tokens=True)
        return text


GENERATED: ContextVar[Generated | None] = ContextVar("GENERATED", default=None)
"""Set while OpenRLHF answers one prompt in tandem; its threads inherit it."""


def response_of(query: str, prompt: str) -> str | None:
    """The response in a query, or None if the prompt's end cannot be found in it."""
    generated = GENERATED.get()
    if generated is not None and (response := generated.response_in(query)) is not None:
        return response
    if query.startswith(prompt):
        end: int | None = len(prompt)
    else:
        end = _end_of(prompt, query)
    if end is None:
        return None
    last = max(end, len(query) - _LAST)
    return query[end:last] + _END.sub("", query[last:])


class _Letter(NamedTuple):
    """A letter or digit, without case, accent or width, and where it ends in its text."""

    sign: str
    end: int


class _Letters:
    """The letters and digits of a text."""

    def __init__(self, text: str) -> None:
        known = _UNKNOWN.sub(lambda match: " " * len(match[0]), text)
        letters = list(_letters(known))
        self.text = "".join(one.sign for one in letters)
        self.ends = [one.end for one in letters]


def _letters(text: str) -> Iterator[_Letter]:
    for place, character in enumerate(text, 1):
        for sign in unicodedata.normalize("NFKD", character).casefold():
            if sign.isalnum():
                yield _Letter(sign, place)


def _end_of(prompt: str, query: str) -> int | None:
    """Where a prompt ends in a query."""
    asked, given = _Letters(prompt), _Letters(query[: 8 * len(prompt) + 1_000])
    for start in (0, *islice(_starts(asked.text, given.text), _MOST_STARTS)):
        if (run := _aligned(asked.text[start:], given.text)) is None:
            continue
        at, place = start + run[0], run[1]
        lost, last = asked.text[at:], asked.text[max(0, at - _START) : at]
        if start and (any(map(str.isascii, lost)) or last in given.text[place:]):
            continue  # where another part of the prompt is like its end
        rest = prompt[asked.ends[at - 1] if at else 0 :]
        return _past(rest, query, given.ends[place - 1] if place else 0)
    return None


def _starts(asked: str, given: str) -> Iterator[int]:
    """Where the given letters may begin in a prompt whose left was cut off, leftmost first."""
    for place in range(0, min(8 * _START, len(given) - _START), _START):
        found = asked.find(given[place : place + _START])
        while found >= 0:
            if found >= place:
                yield found - place
            found = asked.find(given[place : place + _START], found + 1)


def _aligned(asked: str, given: str) -> tuple[int, int] | None:
    """How far a prompt's letters reach, in themselves and in the given ones, or None.

    What differs is skipped up to where both run together again. None if much of the prompt is not
    found, or another number of boxes than it has.
    """
    at, place, kept = 0, 0, 0
    while True:
        same = _common(asked, at, given, place)
        at, place, kept = at + same, place + same, kept + same
        if at == len(asked):
            break
        if (skip := _skip(asked, at, given, place)) is None:
            break
        at, place = at + skip[0], place + skip[1]
    is_found = len(asked) - at < _PROBE and kept >= _LEAST_KEPT * len(asked)
    if not is_found or asked.count("boxed") != given[:place].count("boxed"):
        return None
    return at, place


def _common(first: str, at: int, second: str, place: int) -> int:
    """The number of equal letters from two places on."""
    most = min(len(first) - at, len(second) - place)
    return next((n for n in range(most) if first[at + n] != second[place + n]), most)


def _skip(asked: str, at: int, given: str, place: int) -> tuple[int, int] | None:
    """The fewest letters to skip on both sides, so that what follows is equal."""
    found = []
    for lost in range(min(_SKIPPED, len(asked) - at)):
        probe = asked[at + lost : at + lost + _PROBE]
        added = given.find(probe, place, place + _SKIPPED + len(probe)) - place
        if added >= 0 and len(probe) >= _LEAST_PROBE:
            found.append((lost + added, lost, added))
    return min(found)[1:] if found else None


def _past(rest: str, query: str, place: int) -> int:
    """Past the signs that end a prompt, as far as they are there."""
    for sign in filter(str.strip, rest):
        if (match := re.compile(rf"\s{{0,64}}{re.escape(sign)}").match(query, place)) is not None:
            place = match.end()
    return place
