"""Who wrote each token of a response that an agent loop put together from one or more calls."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.rules import Rule

__all__ = ["AuthoredResponse", "Call", "author_response"]


@dataclass(frozen=True, slots=True)
class Call:
    """One generate call of a trajectory: its tandem seed, what was sent and what came back."""

    seed: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AuthoredResponse:
    """The authorship of a whole response, tool outputs and other context included.

    senior: bool ``[length]``, true where the senior is the author; false for the junior's tokens
    and for tokens that no model wrote. passages: (seed, start, stop) of every generate call whose
    tokens are in the response, in order: the tokens that a model wrote.
    """

    senior: NDArray[np.bool_]
    passages: tuple[tuple[int, int, int], ...]


def author_response(
    rule: Rule,
    calls: Sequence[Call],
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    response_mask: Sequence[int],
) -> AuthoredResponse:
    """Replay every call where its tokens stand in the response.

    A call belongs to the response when what was sent is how prompt and response begin; a loop may
    drop a call, cut its tokens short, or truncate the response. Raises :class:`AuthorshipError`
    when the mask trains a token that no call accounts for.
    """
    if len(response_mask) != len(response_ids):
        raise AuthorshipError(
            f"The agent loop returned {len(response_ids)} response tokens with a mask of "
            f"{len(response_mask)}."
        )
    text = (*prompt_ids, *response_ids)
    passages: list[tuple[int, int, int]] = []
    token_ids: list[list[int]] = []
    for call in calls:
        start = len(call.prompt_ids) - len(prompt_ids)
        if start < 0 or text[: len(call.prompt_ids)] != call.prompt_ids:
            continue
        length = _agreeing(call.token_ids, text[len(call.prompt_ids) :])
        if length == 0:
            continue
        passages.append((call.seed, start, start + length))
        token_ids.append(list(call.token_ids[:length]))
    senior = np.zeros(len(response_ids), dtype=np.bool_)
    written = np.zeros(len(response_ids), dtype=np.bool_)
    replayed = rule.replay_batch(token_ids, [seed for seed, _, _ in passages])
    for (_, start, stop), authorship in zip(passages, replayed, strict=True):
        senior[start:stop] = authorship.senior
        written[start:stop] = True
    unexplained = np.flatnonzero(np.asarray(response_mask, dtype=np.bool_) & ~written)
    if unexplained.size:
        raise AuthorshipError(
            f"Response token {int(unexplained[0])} is to be trained on, but none of the "
            f"{len(calls)} generate calls of its trajectory wrote it ({unexplained.size} such "
            "tokens of this response): the agent loop changed the tokens that the engine "
            "returned. Use an agent loop that keeps them, or mask what it rewrites."
        )
    passages.sort(key=operator.itemgetter(1))
    return AuthoredResponse(senior, tuple(passages))


def _agreeing(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many leading tokens are the same."""
    length = min(len(ours), len(theirs))
    for i in range(length):
        if ours[i] != theirs[i]:
            return i
    return length
