"""A Bernoulli redraw after every n tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.bernoulli import BernoulliSchedule
from tandem_plugin.schedules.parameters import check_count
from tandem_plugin.schedules.schedule import Tensor

__all__ = ["ChunkSchedule"]


@dataclass(frozen=True, slots=True)
class ChunkSchedule(BernoulliSchedule):
    """Redraw the author after every ``n`` tokens, whatever the tokens are."""

    name: ClassVar[str] = "chunk"
    boundaries: ClassVar[str] = "every"

    n: int = 32
    """The tokens from one redraw to the next."""

    def __post_init__(self) -> None:
        BernoulliSchedule.__post_init__(self)
        check_count("n", self.n)

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._redrawn(run >= self.n - 1, author, run, u)

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        runs = np.arange(1, is_boundary.shape[1] + 1, dtype=np.int64) % self.n
        return self._drawn(np.broadcast_to(runs, is_boundary.shape), u)
