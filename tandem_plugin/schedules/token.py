"""A Bernoulli redraw after every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.bernoulli import BernoulliSchedule
from tandem_plugin.schedules.schedule import Tensor

__all__ = ["TokenSchedule"]


@dataclass(frozen=True, slots=True)
class TokenSchedule(BernoulliSchedule):
    """Redraw the author after every token, whatever the token is."""

    name: ClassVar[str] = "token"
    boundaries: ClassVar[str] = "every"

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return u < self.p, run * 0

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        return u < self.p, np.zeros(u.shape, dtype=np.int64)
