"""A Bernoulli redraw after every n tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.parameters import check_count, check_probability
from tandem_plugin.schedules.schedule import Tensor

__all__ = ["ChunkSchedule"]


@dataclass(frozen=True, slots=True)
class ChunkSchedule:
    """Redraw the author after every ``n`` tokens, whatever the tokens are."""

    name: ClassVar[str] = "chunk"
    boundaries: ClassVar[str] = "every"

    p: float = 0.5
    """The probability that a redraw gives the senior."""
    n: int = 32
    """The tokens from one redraw to the next."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", check_probability("p", self.p))
        check_count("n", self.n)

    def start(self, u: Tensor) -> Tensor:
        return u < self.p

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        redraw = run >= self.n - 1
        return (redraw & (u < self.p)) | (~redraw & author), (run + 1) * ~redraw
