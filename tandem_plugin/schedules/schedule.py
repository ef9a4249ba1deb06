"""What a schedule is: two vectorised steps that say who writes the next token."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

__all__ = ["Schedule", "Tensor"]

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
