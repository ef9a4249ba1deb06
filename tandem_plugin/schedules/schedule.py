"""What a schedule is: two vectorised steps that say who writes the next token."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Schedule", "Tensor", "WalkingSchedule"]

Tensor: TypeAlias = Any
"""A NumPy array or a torch tensor. Schedules use operators only, so that one code serves both."""


@runtime_checkable
class Schedule(Protocol):
    """Says who is the author of each token, for a batch of responses at once.

    A schedule is a frozen dataclass whose fields are its parameters. State per response is the
    author of the current token and the run: the number of tokens since the last redraw that were
    no boundary. Only operators that NumPy arrays and torch tensors share may be used (``< & | ~ +
    *`` and the like), so that the engine on any device and the replay run the same code.
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
    """A schedule that also walks through whole responses, without a step for each token.

    Optional: replay and engines that resume requests use ``walk`` where a schedule has it, and step
    through the tokens where it has none. Both must say the same; a small batch of both is compared
    before a schedule is used.
    """

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The authors of whole responses, on the host.

        is_boundary: bool ``[batch, time]``, whether each token is a boundary. u: float64
        ``[batch, time + 1]``, the draws of every position. Returns what ``start`` and then
        ``advance`` return at each position: authors, bool ``[batch, time + 1]``, the last of which
        writes the token behind the response, and runs, int64 of the same shape, 0 at the first.
        What stands at a position follows from the tokens before it alone.
        """
        ...
