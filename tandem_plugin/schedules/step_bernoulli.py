"""A Bernoulli redraw at the ends of reasoning steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.parameters import check_probability
from tandem_plugin.schedules.schedule import Tensor

__all__ = ["StepBernoulliSchedule"]


@dataclass(frozen=True, slots=True)
class StepBernoulliSchedule:
    """Redraw the author after every token that contains a blank line: at the end of a step."""

    name: ClassVar[str] = "step-bernoulli"
    boundaries: ClassVar[str] = "step"

    p: float = 0.5
    """The probability that a redraw gives the senior."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", check_probability("p", self.p))

    def start(self, u: Tensor) -> Tensor:
        return u < self.p

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return (is_boundary & (u < self.p)) | (~is_boundary & author), (run + 1) * ~is_boundary
