"""What the schedules that redraw have in common: p, and what a redraw does."""

from __future__ import annotations

from dataclasses import dataclass

from tandem_plugin.schedules.parameters import check_probability
from tandem_plugin.schedules.schedule import Tensor

__all__ = ["BernoulliSchedule"]


@dataclass(frozen=True, slots=True)
class BernoulliSchedule:
    """A first author and redraws ~ Bernoulli(p); without more, a redraw after every boundary.

    No schedule by itself: those that are have a name, and say where else they redraw.
    """

    p: float = 0.5
    """The probability that a redraw gives the senior."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", check_probability("p", self.p))

    def start(self, u: Tensor) -> Tensor:
        return u < self.p

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._redrawn(is_boundary, author, run, u)

    def _redrawn(
        self, redraw: Tensor, author: Tensor, run: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A new author and run 0 where ``redraw``; elsewhere the author stays and the run grows."""
        return author ^ (redraw & (author ^ (u < self.p))), (run + 1) * ~redraw
