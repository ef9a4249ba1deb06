"""Strict alternation at boundaries: the paper's evaluation schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.errors import ConfigError
from tandem_plugin.schedules.schedule import Tensor

__all__ = ["StepSchedule"]


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """Hand over at every boundary: one reasoning step each, in turn.

    Source: section 4.3 of the paper ("reasoning-step schedule").
    """

    name: ClassVar[str] = "step"
    boundaries: ClassVar[str] = "step"

    first: str = "senior"
    """Who writes the first step: senior or junior."""

    def __post_init__(self) -> None:
        if self.first not in ("senior", "junior"):
            raise ConfigError(f"first={self.first!r} is not an author: give senior or junior.")

    def start(self, u: Tensor) -> Tensor:
        return u >= 0 if self.first == "senior" else u < 0

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return author ^ is_boundary, (run + 1) * ~is_boundary
