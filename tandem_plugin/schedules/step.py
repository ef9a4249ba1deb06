"""Strict alternation at boundaries: the paper's evaluation schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.parameters import check_choice
from tandem_plugin.schedules.schedule import Tensor, tokens_since


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """Hand off at every boundary: one reasoning step each, in turn.

    Source: section 4.3 of the paper ("reasoning-step schedule").
    """

    name: ClassVar[str] = "step"
    boundaries: ClassVar[str] = "step"

    first: Literal["senior", "junior"] = "senior"
    """Who writes the first step: senior or junior."""

    def __post_init__(self) -> None:
        check_choice("first", self.first, ("senior", "junior"))

    def start(self, u: Tensor) -> Tensor:
        return u >= 0 if self.first == "senior" else u < 0

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return author ^ is_boundary, (run + 1) * ~is_boundary

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        authors = np.empty(u.shape, dtype=np.bool_)
        authors[:, 0] = self.start(u[:, 0])
        authors[:, 1:] = authors[:, :1] ^ np.logical_xor.accumulate(is_boundary, axis=1)
        runs = np.zeros(u.shape, dtype=np.int64)
        runs[:, 1:] = tokens_since(is_boundary)
        return authors, runs
