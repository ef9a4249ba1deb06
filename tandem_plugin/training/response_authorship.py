"""Who wrote each token of a response that an agent loop composed from one or more calls.

A loop keeps a prefix of a call's tokens after the text that the call was sent, and may then add
its own tokens, which it does not train. An explanation assigns every trained token of a text to
a call in this way; if two explanations differ in a token's author, the author is unknown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.rules import Rule


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where a text equals a call's tokens: from ``start``, its prompt's end, up to ``stop``."""

    start: int
    stop: int


def trained_stops(stretches: Sequence[Stretch], trained: NDArray[np.bool_]) -> list[int]:
    """How far each call's trained tokens may reach, over all explanations of a text.

    stretches: one per call, none empty; trained: bool ``[length]``, true only within stretches. A
    call may have written every trained token from its start up to the returned position
    (exclusive); none if that is not after its start.

    From the end backwards, a call is part of an explanation if its tokens reach the last trained
    token, or all trained tokens before the start of a later call that is part of one. Tokens before
    a stretch are always explained.
    """
    # One after the last trained token of those before each position.
    done = np.concatenate(
        ([0], np.maximum.accumulate(np.where(trained, np.arange(1, len(trained) + 1), 0)))
    )
    stops = [0] * len(stretches)
    ends = [-int(done[-1])]  # negated to ascend: where a call's tokens may end
    order = sorted(range(len(stretches)), key=lambda i: -stretches[i].start)
    for start, numbers in groupby(order, key=lambda i: stretches[i].start):
        is_part = False
        for number in numbers:
            furthest = bisect_left(ends, -stretches[number].stop)
            if furthest < len(ends):
                stops[number] = -ends[furthest]
                is_part = True
        if is_part:
            ends.append(-int(done[start]))
    return stops


Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One generate call of a trajectory: its tandem seed, what was sent, what came back.

    prompt_ids, token_ids: int64 ``[length]``.
    """

    seed: int
    prompt_ids: Ids
    token_ids: Ids


@dataclass(frozen=True, slots=True)
class AuthoredResponse:
    """The authorship of a whole response, tool outputs included.

    segments: (seed, start, stop) of every generate call with a trained token, in order, from its
    first token up to its last trained one. senior: bool ``[length]``, false for the junior's tokens
    and outside the segments. unknown: bool ``[length]``, the trained tokens that two calls could
    have written with different authors, where ``senior`` is that of one.
    """

    senior: NDArray[np.bool_]
    unknown: NDArray[np.bool_]
    segments: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a text that a call may have written, ``[start, stop)``, and its authors."""

    seed: int
    start: int
    stop: int
    senior: NDArray[np.bool_]


def author_response(
    rule: Rule,
    calls: Sequence[Call],
    prompt_ids: ArrayLike,
    response_ids: ArrayLike,
    response_mask: ArrayLike,
) -> AuthoredResponse:
    """The authorship of a response, by replaying every call whose tokens are trained in it.

    rule: of all calls. calls: of the whole trajectory, in any order; a loop may drop calls, cut
    them short, add masked tokens and truncate the response. Segments and authors are those of one
    explanation, the same in every run. Raises :class:`AuthorshipError` for a trained token that no
    call accounts for.
    """
    prompt = np.array(prompt_ids, dtype=np.int64)
    response = np.array(response_ids, dtype=np.int64)
    trained = np.array(response_mask).astype(np.bool_)
    if len(trained) != len(response):
        raise AuthorshipError(
            "agent-mask-length-differs", tokens=len(response), entries=len(trained)
        )
    text = np.concatenate([prompt, response])
    trained = np.concatenate([np.zeros(len(prompt), dtype=np.bool_), trained])
    candidates = [(call, stretch) for call in calls if (stretch := _stretch(call, text))]
    _check_explained(trained, candidates, len(calls), len(prompt))
    parts = _parts(rule, candidates, trained)
    chosen = _explanation(trained, parts)
    if chosen and chosen[0].start < len(prompt):
        raise AuthorshipError("generate-call-cut", tokens=len(prompt) - chosen[0].start)
    senior = np.zeros(len(text), dtype=np.bool_)
    for part in chosen:
        senior[part.start : part.stop] = part.senior
    return AuthoredResponse(
        senior[len(prompt) :],
        _unknown(trained, parts)[len(prompt) :],
        tuple((part.seed, part.start - len(prompt), part.stop - len(prompt)) for part in chosen),
    )


def _stretch(call: Call, text: Ids) -> Stretch | None:
    """Where the text equals the call's tokens; None if nowhere."""
    start = len(call.prompt_ids)
    if not np.array_equal(text[:start], call.prompt_ids):
        return None
    length = min(len(call.token_ids), len(text) - start)
    differs = text[start : start + length] != call.token_ids[:length]
    agreeing = int(differs.argmax()) if differs.any() else length
    return Stretch(start, start + agreeing) if agreeing else None


def _parts(
    rule: Rule, candidates: Sequence[tuple[Call, Stretch]], trained: NDArray[np.bool_]
) -> list[_Part]:
    """The part that each call may have written, for calls with any trained token."""
    stops = trained_stops([stretch for _, stretch in candidates], trained)
    spans = [
        (call, stretch.start, stop)
        for (call, stretch), stop in zip(candidates, stops, strict=True)
        if stop > stretch.start
    ]
    replayed = rule.replay_batch(
        [call.token_ids[: stop - start] for call, start, stop in spans],
        [call.seed for call, _, _ in spans],
    )
    return [
        _Part(call.seed, start, stop, authorship.senior)
        for (call, start, stop), authorship in zip(spans, replayed, strict=True)
    ]


def _explanation(trained: NDArray[np.bool_], parts: Sequence[_Part]) -> list[_Part]:
    """One explanation, independent of the order of calls: the call that begins last continues.

    Among equal calls, the one with the smallest seed.
    """
    parts = sorted(parts, key=lambda part: part.start)
    starts = [part.start for part in parts]
    tokens = np.flatnonzero(trained)
    chosen: list[_Part] = []
    explained = done = 0
    while explained < len(tokens):
        token = int(tokens[explained])
        started = parts[bisect_left(starts, done) : bisect_right(starts, token)]
        writers = [part for part in started if part.stop > token]
        chosen.append(max(writers, key=lambda part: (part.start, part.stop, -part.seed)))
        done = chosen[-1].stop
        explained = int(np.searchsorted(tokens, done))
    return chosen


def _check_explained(
    trained: NDArray[np.bool_],
    candidates: Sequence[tuple[Call, Stretch]],
    calls: int,
    prompt_length: int,
) -> None:
    written = np.zeros(len(trained), dtype=np.bool_)
    for _, stretch in candidates:
        written[stretch.start : stretch.stop] = True
    unexplained = np.flatnonzero(trained & ~written)
    if unexplained.size:
        raise AuthorshipError(
            "trained-token-without-call",
            position=int(unexplained[0]) - prompt_length,
            calls=calls,
            count=unexplained.size,
        )


def _unknown(trained: NDArray[np.bool_], parts: Sequence[_Part]) -> NDArray[np.bool_]:
    """The trained tokens to which two explanations give different authors.

    Each trained token of a call of ``parts`` is written by that call in some explanation.
    """
    author = np.full(len(trained), -1, dtype=np.int8)
    differing = np.zeros(len(trained), dtype=np.bool_)
    for part in parts:
        place = slice(part.start, part.stop)
        differing[place] |= (author[place] >= 0) & (author[place] != part.senior)
        author[place] = part.senior
    return differing & trained
