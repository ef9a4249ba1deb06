"""The schedule protocol, and how to apply a schedule to whole responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Schedule", "Tensor", "WalkingSchedule", "has_walk", "step_through", "tokens_since"]

Tensor: TypeAlias = Any
"""A NumPy array or a torch tensor. Schedules use operators only, so that one code serves both."""


@runtime_checkable
class Schedule(Protocol):
    """Decides the author of each token, for a batch of responses at once.

    A schedule is a frozen dataclass whose fields are its parameters. The state per response is the
    author of the current token and the run: the number of non-boundary tokens since the last
    redraw. Use only operators that NumPy arrays and torch tensors share (``< & | ~ + *`` and the
    like), so that the engine on any device and the replay run the same code.
    """

    name: ClassVar[str]
    """The name it is selected by."""

    boundaries: ClassVar[str]
    """The boundary resolver it uses when the configuration names none."""

    def start(self, u: Tensor) -> Tensor:
        """The author of the first token.

        u: float64 ``[batch]``, the draws of position 0. Returns bool ``[batch]``, true = senior.
        """
        ...

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The author of token t + 1 and the new run, once token t is known.

        author: bool ``[batch]``, who wrote token t. run: int64 ``[batch]``. is_boundary: bool
        ``[batch]``, whether token t is a boundary. u: float64 ``[batch]``, the draws of position
        t + 1. Returns (bool ``[batch]``, int64 ``[batch]``).
        """
        ...


class WalkingSchedule(Schedule, Protocol):
    """A schedule that can also process whole responses at once.

    Optional: replay and engines that resume requests use ``walk`` if a schedule has it, and
    otherwise step through the tokens. Both must give the same result; they are compared on a small
    batch before a schedule is used.
    """

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The authors of whole responses, on the host.

        is_boundary: bool ``[batch, time]``, whether each token is a boundary. u: float64 ``[batch,
        time + 1]``, the draws of every position. Returns what ``start`` and then ``advance`` return
        at each position: authors, bool ``[batch, time + 1]``, the last of which writes the token
        after the response, and runs, int64 of the same shape, 0 at the first position. The values
        at a position depend only on the tokens before it.
        """
        ...


def has_walk(schedule: type[Schedule]) -> bool:
    """Whether a schedule's class defines a ``walk`` that matches its own steps.

    A subclass that redefines ``start`` or ``advance`` without ``walk`` does not: the inherited
    ``walk`` belongs to other steps.
    """
    for kind in schedule.__mro__:
        members = vars(kind)
        if "walk" in members:
            return True
        if "start" in members or "advance" in members:
            return False
    return False


def step_through(
    schedule: Schedule,
    is_boundary: NDArray[np.bool_],
    u: NDArray[np.float64],
    lengths: Sequence[int] | None = None,
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """What ``walk`` of a schedule returns, by ``start`` and ``advance``, for a batch of responses.

    is_boundary: bool ``[batch, time]``. u: float64 ``[batch, time + 1]``. lengths: how many tokens
    each response has, the longest first; what is behind them stays undefined. Returns authors, bool
    ``[batch, time + 1]``, and runs, int64 of the same shape.
    """
    batch, time = is_boundary.shape
    # Time first, so that each step reads and writes one contiguous row.
    flags, drawn = np.ascontiguousarray(is_boundary.T), np.ascontiguousarray(u.T)
    authors = np.empty((time + 1, batch), dtype=np.bool_)
    runs = np.zeros((time + 1, batch), dtype=np.int64)
    author, run = schedule.start(drawn[0]), runs[0]
    authors[0] = author
    going = [batch] * time if lengths is None else _longer_than(lengths, time)
    for t, rows in enumerate(going):
        if rows < len(run):  # these responses end here
            author, run = author[:rows], run[:rows]
        author, run = schedule.advance(author, run, flags[t, :rows], drawn[t + 1, :rows])
        authors[t + 1, :rows], runs[t + 1, :rows] = author, run
    return np.ascontiguousarray(authors.T), np.ascontiguousarray(runs.T)


def tokens_since(is_boundary: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many tokens behind the last boundary each token is: 0 at a boundary itself.

    is_boundary: bool ``[..., time]``. The first token is 1 where it is none, as if one came before
    it. Returns int64 of the same shape.
    """
    places = np.arange(is_boundary.shape[-1], dtype=np.int64)
    last: NDArray[np.int64] = np.maximum.accumulate(np.where(is_boundary, places, -1), axis=-1)
    return places - last


def _longer_than(lengths: Sequence[int], time: int) -> list[int]:
    """How many of ``lengths``, the longest first, are greater than each of 0 to ``time - 1``."""
    ascending = np.asarray(lengths, dtype=np.int64)[::-1]
    ended = np.searchsorted(ascending, np.arange(time), "right")
    going: list[int] = (len(lengths) - ended).tolist()
    return going
