"""The junior writes everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.schedule import Tensor

__all__ = ["JuniorSchedule"]


@dataclass(frozen=True, slots=True)
class JuniorSchedule:
    """The junior writes every token. For evaluation: nothing in such a response is trained on."""

    name: ClassVar[str] = "junior"
    boundaries: ClassVar[str] = "every"

    def start(self, u: Tensor) -> Tensor:
        return u < 0

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return u < 0, run * 0
