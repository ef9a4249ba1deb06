"""Replay: the authorship of a response, from its schedule, seed and token ids alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.authorship import Authorship
from tandem_plugin.boundaries import BoundarySet
from tandem_plugin.draws import check_seed, draws_table
from tandem_plugin.errors import AuthorshipError
from tandem_plugin.schedules import Schedule

__all__ = ["Cursor", "replay", "replay_batch", "replay_cursor"]


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a schedule stands in a response: who writes the next token, and the run so far."""

    position: int
    """The response position of the next token."""
    author: bool
    """True when the senior writes the next token."""
    run: int
    """Tokens since the last redraw that were no boundary."""


def replay(
    token_ids: Sequence[int], seed: int, schedule: Schedule, boundaries: BoundarySet
) -> Authorship:
    """The authorship of one response.

    token_ids: the response's token ids, the prompt's excluded. Raises :class:`RequestError` for a
    seed out of range. Source: Algorithm 1 of the paper.
    """
    return replay_batch([token_ids], [seed], schedule, boundaries)[0]


def replay_batch(
    responses: Sequence[Sequence[int]],
    seeds: Sequence[int],
    schedule: Schedule,
    boundaries: BoundarySet,
) -> list[Authorship]:
    """The authorship of many responses of one schedule, as :func:`replay` gives it for each."""
    if len(responses) != len(seeds):
        raise AuthorshipError(f"{len(responses)} responses came with {len(seeds)} seeds.")
    for seed in seeds:
        check_seed(seed)
    lengths = [len(response) for response in responses]
    longest = max(lengths, default=0)
    if longest == 0:
        return [Authorship(np.zeros(0, np.bool_)) for _ in responses]
    is_boundary = np.zeros((len(responses), longest), dtype=np.bool_)
    for row, response in zip(is_boundary, responses, strict=True):
        row[: len(response)] = boundaries.contains(_flat(response))
    # Time first, so that each step reads and writes one contiguous row.
    authors, _ = _walk(
        schedule, draws_table(seeds, longest), np.ascontiguousarray(is_boundary.T[:-1])
    )
    rows = np.ascontiguousarray(authors.T)
    return [Authorship(row[:length]) for row, length in zip(rows, lengths, strict=True)]


def replay_cursor(
    token_ids: Sequence[int], seed: int, schedule: Schedule, boundaries: BoundarySet
) -> Cursor:
    """Where the schedule stands after ``token_ids``: what an engine needs to go on from there."""
    u = draws_table([seed], len(token_ids) + 1)
    is_boundary = boundaries.contains(_flat(token_ids)[:, None])
    authors, run = _walk(schedule, u, is_boundary)
    return Cursor(len(token_ids), bool(authors[-1, 0]), int(run[0]))


def _walk(
    schedule: Schedule, u: NDArray[np.float64], is_boundary: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Authors of ``len(is_boundary) + 1`` positions: bool ``[time, batch]``; and the last run."""
    authors = np.empty(u.shape, dtype=np.bool_)
    author, run = schedule.start(u[0]), np.zeros(u.shape[1], dtype=np.int64)
    authors[0] = author
    for t in range(len(is_boundary)):
        author, run = schedule.advance(author, run, is_boundary[t], u[t + 1])
        authors[t + 1] = author
    return authors, run


def _flat(token_ids: ArrayLike) -> NDArray[np.int64]:
    if isinstance(token_ids, list) and token_ids and type(token_ids[0]) is int:
        # Three times as fast as asarray; whatever is no integer is left to asarray's judgement.
        with suppress(struct.error):
            return np.frombuffer(struct.pack(f"{len(token_ids)}q", *token_ids), dtype=np.int64)
    ids = np.asarray(token_ids)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise AuthorshipError("A response is a flat sequence of integer token ids.")
    return ids.astype(np.int64, copy=False)
