"""One model writes everything: the senior, or the junior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.bernoulli import SoloWordSchedule
from tandem_plugin.schedules.schedule import Schedule, Tensor


@dataclass(frozen=True, slots=True)
class SoloSchedule:
    """The senior writes every token."""

    name: ClassVar[str] = "solo"
    boundaries: ClassVar[str] = "every"

    def start(self, u: Tensor) -> Tensor:
        return u >= 0

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return u >= 0, run * 0

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        return u >= 0, np.zeros(u.shape, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class JuniorSchedule:
    """The junior writes every token. For evaluation: nothing in such a response is trained."""

    name: ClassVar[str] = "junior"
    boundaries: ClassVar[str] = "every"

    def start(self, u: Tensor) -> Tensor:
        return u < 0

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return u < 0, run * 0

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        return u < 0, np.zeros(u.shape, dtype=np.int64)


def lets_junior_write(schedule: Schedule) -> bool:
    """Whether the junior can be an author: not under ``solo`` and ``solo-word``."""
    return not isinstance(schedule, (SoloSchedule, SoloWordSchedule))
