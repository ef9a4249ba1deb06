"""Replay: the authorship of a response, from its schedule, seed and token ids alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin._draws import check_seed, draws_table, response_draws
from tandem_plugin.authorship import Authorship
from tandem_plugin.boundaries import BoundarySet
from tandem_plugin.errors import AuthorshipError
from tandem_plugin.schedules import Schedule
from tandem_plugin.schedules.alone import RUN_ALONE, share_alone
from tandem_plugin.schedules.schedule import has_walk, step_through

TokenIds: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
"""Token ids of one response, ``[length]``."""

_WALKED = 2**16
"""Number of positions that a schedule's own ``walk`` takes at once, to fit a cache."""
_STEPPED = 2**23
"""Number stepped through at once: a step costs the same for few responses and for many."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The authors of one response, and the schedule's state at its end."""

    authors: NDArray[np.bool_]
    """bool ``[length + 1]``, true = senior: who writes each token, and the one after the last."""
    run: int
    """The schedule's run after the last token: for most, the tokens since the last redraw."""

    @property
    def author(self) -> bool:
        """True if the senior writes the next token."""
        return bool(self.authors[-1])


def replay(
    token_ids: Sequence[int], seed: int, schedule: Schedule, boundaries: BoundarySet
) -> Authorship:
    """The authorship of one response.

    token_ids: the response's token ids, without the prompt's. Raises :class:`RequestError` for a
    seed out of range. Source: Algorithm 1 of the paper.
    """
    return replay_batch([token_ids], [seed], schedule, boundaries)[0]


def replay_batch(
    responses: Sequence[TokenIds],
    seeds: Sequence[int],
    schedule: Schedule,
    boundaries: BoundarySet,
) -> list[Authorship]:
    """The authorship of many responses under one schedule; equal to :func:`replay` for each."""
    walks = walk_batch(responses, seeds, schedule, boundaries)
    return [Authorship(walk.authors[:-1]) for walk in walks]


def walk_batch(
    responses: Sequence[TokenIds],
    seeds: Sequence[int],
    schedule: Schedule,
    boundaries: BoundarySet,
) -> list[Walk]:
    """The authors of each of many responses, and the schedule's state at their ends.

    Responses of similar length are processed together, with the schedule's own ``walk`` if it has
    one, otherwise position by position; those that the senior writes alone have no other author.
    Raises :class:`RequestError` for a seed out of range and
    :class:`AuthorshipError` for responses that are not sequences of token ids.
    """
    if len(responses) != len(seeds):
        raise AuthorshipError("seed-count-differs", responses=len(responses), seeds=len(seeds))
    for seed in seeds:
        check_seed(seed)
    flat = [_flat(response) for response in responses]
    order = sorted(range(len(flat)), key=lambda place: len(flat[place]), reverse=True)
    walks: dict[int, Walk] = {}
    for places in _blocks(order, flat, _WALKED if has_walk(type(schedule)) else _STEPPED):
        of_block = [flat[place] for place in places]
        authors, runs = _walk(schedule, boundaries, of_block, [seeds[place] for place in places])
        for row, place in enumerate(places):
            end = len(flat[place])
            walks[place] = Walk(authors[row, : end + 1], int(runs[row, end]))
    for place in np.flatnonzero(are_alone(schedule, seeds)).tolist():
        walks[place] = Walk(np.ones(len(flat[place]) + 1, dtype=np.bool_), RUN_ALONE)
    return [walks[place] for place in range(len(flat))]


def are_alone(schedule: Schedule, seeds: Sequence[int]) -> NDArray[np.bool_]:
    """Which responses the senior writes alone, by their tandem seeds: bool ``[len(seeds)]``.

    Raises :class:`RequestError` for a seed out of range.
    """
    share = share_alone(schedule)
    return response_draws(seeds) < share if share else np.zeros(len(seeds), dtype=np.bool_)


def _blocks(
    order: Sequence[int], flat: Sequence[NDArray[np.int64]], most: int
) -> Iterator[Sequence[int]]:
    """Indices of responses, the longest first, in blocks of at most ``most`` positions."""
    start = 0
    while start < len(order):
        rows = max(1, most // (len(flat[order[start]]) + 1))
        yield order[start : start + rows]
        start += rows


def _walk(
    schedule: Schedule,
    boundaries: BoundarySet,
    responses: Sequence[NDArray[np.int64]],
    seeds: Sequence[int],
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Authors and runs, ``[batch, longest + 1]``, of responses in order, the longest first."""
    lengths = [len(response) for response in responses]
    token_class: NDArray[Any] = np.zeros((len(responses), lengths[0]), dtype=boundaries.table.dtype)
    for row, response in zip(token_class, responses, strict=True):
        row[: len(response)] = boundaries.read(response)
    u = draws_table(seeds, lengths[0] + 1)
    if has_walk(type(schedule)):
        walked: tuple[NDArray[np.bool_], NDArray[np.int64]] = cast(Any, schedule).walk(
            token_class, u
        )
        return walked
    return step_through(schedule, token_class, u, lengths)


def _flat(token_ids: ArrayLike) -> NDArray[np.int64]:
    if isinstance(token_ids, list) and token_ids and type(token_ids[0]) is int:
        # Faster than asarray; anything but integers falls back to asarray.
        with suppress(TypeError, OverflowError):
            return np.frombuffer(array("q", token_ids), dtype=np.int64)
    ids = np.asarray(token_ids)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise AuthorshipError("response-ids-not-integers")
    return ids.astype(np.int64, copy=False)
