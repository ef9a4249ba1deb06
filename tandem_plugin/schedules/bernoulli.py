"""What the schedules that redraw have in common: p, and what a redraw does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.parameters import check_probability
from tandem_plugin.schedules.schedule import Tensor, tokens_since

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

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        return self._drawn(tokens_since(is_boundary), u)

    def _redrawn(
        self, redraw: Tensor, author: Tensor, run: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A new author and run 0 where ``redraw``; elsewhere the author stays and the run grows."""
        return author ^ (redraw & (author ^ (u < self.p))), (run + 1) * ~redraw

    def _drawn(
        self, runs: NDArray[np.int64], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Authors and runs of every position, given the runs behind every token.

        A run counts the tokens since its author was drawn: so it says which draw that was.
        """
        runs = np.concatenate([np.zeros_like(runs, shape=(len(runs), 1)), runs], axis=1)
        drawn = np.arange(runs.size).reshape(runs.shape) - runs
        return (u < self.p).ravel().take(drawn), runs
