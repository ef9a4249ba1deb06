"""One handover: the first author writes up to a given boundary, the other writes the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.parameters import check_choice, check_index
from tandem_plugin.schedules.schedule import Tensor


@dataclass(frozen=True, slots=True)
class HandoverSchedule:
    """Hand over once, after boundary number ``after``; by default every token is a boundary.

    With the junior first, the prefix comes from a frozen expert and must not be trained on: LUFFY
    (arXiv:2504.14945) and BREAD (arXiv:2506.17211). With the senior first, it is an evaluation of
    whether a weaker model can finish a stronger one's prefix (transfer utility, arXiv:2603.20508).
    """

    name: ClassVar[str] = "handover"
    boundaries: ClassVar[str] = "every"

    first: Literal["senior", "junior"] = "junior"
    """Who writes the prefix: senior or junior."""
    after: int = 64
    """How many boundaries the prefix has, at training step 0; with 0 there is none."""
    end: int = 0
    """The same from training step ``steps`` on."""
    steps: int = 0
    """How many training steps the prefix takes from ``after`` to ``end``; with 0 it stays."""
    training_step: int = 0
    """The trainer's step, which trainers fill in."""

    def __post_init__(self) -> None:
        check_choice("first", self.first, ("senior", "junior"))
        for name in ("after", "end", "steps", "training_step"):
            check_index(name, getattr(self, name))

    @property
    def prefix(self) -> int:
        """The number of boundaries in the prefix at this step: linear in the step, rounded down."""
        if not self.steps:
            return self.after
        done = min(self.training_step, self.steps)
        return self.after + (self.end - self.after) * done // self.steps

    def start(self, u: Tensor) -> Tensor:
        # Draws are in [0, 1): one side is true everywhere, the other nowhere.
        return u >= 0 if (self.prefix > 0) == (self.first == "senior") else u < 0

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        passed = run + is_boundary
        return self._author(passed), passed

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        passed = np.zeros(u.shape, dtype=np.int64)
        np.cumsum(is_boundary, axis=1, out=passed[:, 1:])
        return self._author(passed), passed

    def _author(self, passed: Tensor) -> Tensor:
        """Who writes behind so many boundaries."""
        return passed < self.prefix if self.first == "senior" else passed >= self.prefix
