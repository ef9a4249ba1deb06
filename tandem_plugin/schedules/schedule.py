"""The schedule protocol, and how to apply a schedule to whole responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Tensor: TypeAlias = Any
"""A NumPy array or a torch tensor. Schedules use operators only, and one code serves both."""


_TOGETHER = 64
"""Number of tokens whose arrays are turned to time first at once, to fit a cache."""


@runtime_checkable
class Schedule(Protocol):
    """Decides the author of each token, for a batch of responses at once.

    A schedule is a frozen dataclass whose fields are its parameters. The state per response is the
    author of the current token and the run: the number of non-boundary tokens since the last
    redraw. Use only operators that NumPy arrays and torch tensors share (``< & | ~ + *`` and the
    like), since the engine on any device and the replay run the same code.

    With a class variable ``classes``, a tuple of names, it is a schedule of token classes: its
    ``advance`` reads the class of token t, int64 ``[batch]``, where others read whether the token
    is a boundary. Its resolver finds the same classes. What the run means is up to the schedule:
    any int64 above -(2**63), 0 at the first token.
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


def has_walk(schedule: type[Any]) -> bool:
    """Whether a schedule's class is a built-in one that also processes whole responses at once.

    ``walk(is_boundary, u)`` takes bool ``[batch, time]`` and float64 ``[batch, time + 1]`` and
    returns what ``start`` and then ``advance`` return at each position, as :func:`step_through`.
    """
    return schedule.__module__.startswith("tandem_plugin.schedules.") and hasattr(schedule, "walk")


def token_classes(schedule: object) -> tuple[str, ...]:
    """The token classes that a schedule or its class reads, in order; empty for boundaries."""
    classes: tuple[str, ...] = getattr(schedule, "classes", ())
    return classes


def step_through(
    schedule: Schedule,
    token_class: NDArray[np.bool_] | NDArray[np.int64],
    u: NDArray[np.float64],
    lengths: Sequence[int] | None = None,
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """The authors of whole responses and the schedule's runs, by ``start`` and ``advance``.

    token_class: ``[batch, time]``, bool, whether each token is a boundary, or int64, its class. u:
    float64 ``[batch, time + 1]``. lengths: the number of tokens of each response, the longest
    first; later entries are undefined. Returns authors, bool
    ``[batch, time + 1]``, the last one for the token after the response, and runs, int64 of the
    same shape, 0 at the first position.
    """
    batch, time = token_class.shape
    authors = np.empty((batch, time + 1), dtype=np.bool_)
    runs = np.zeros((batch, time + 1), dtype=np.int64)
    author, run = schedule.start(np.ascontiguousarray(u[:, 0])), runs[:, 0].copy()
    authors[:, 0] = author
    going = [batch] * time if lengths is None else _longer_than(lengths, time)
    for start in range(0, time, _TOGETHER):
        stop = min(start + _TOGETHER, time)
        # Time first, so that each step reads and writes contiguous rows.
        classes = np.ascontiguousarray(token_class[:, start:stop].T)
        drawn = np.ascontiguousarray(u[:, start + 1 : stop + 1].T)
        next_authors = np.empty((stop - start, batch), dtype=np.bool_)
        next_runs = np.empty((stop - start, batch), dtype=np.int64)
        for t, rows in enumerate(going[start:stop]):
            if rows < len(run):  # these responses end here
                author, run = author[:rows], run[:rows]
            author, run = schedule.advance(author, run, classes[t, :rows], drawn[t, :rows])
            next_authors[t, :rows], next_runs[t, :rows] = author, run
        authors[:, start + 1 : stop + 1] = next_authors.T
        runs[:, start + 1 : stop + 1] = next_runs.T
    return authors, runs


def tokens_since(is_boundary: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of tokens since the last boundary: 0 at a boundary itself.

    is_boundary: bool ``[..., time]``. A first token that is not a boundary counts as 1, as if one
    came before it. Returns int64 of the same shape.
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
