"""The senior writes everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.schedule import Tensor

__all__ = ["SoloSchedule"]


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
