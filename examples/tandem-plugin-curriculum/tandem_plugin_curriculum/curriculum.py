"""A word schedule whose p goes from one value to another while the trainer warms up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules import Tensor, check_count, check_index, check_probability


@dataclass(frozen=True, slots=True)
class CurriculumSchedule:
    """Redraw the author at word boundaries, with a p that moves in a line over the first steps.

    The trainer fills in ``training_step``; where there is no trainer, a request may give it.
    """

    name: ClassVar[str] = "curriculum"
    boundaries: ClassVar[str] = "word"

    p_start: float = 1.0
    """The probability that a redraw gives the senior, at step 0."""
    p_end: float = 0.5
    """The same from step ``warmup_steps`` on."""
    warmup_steps: int = 100
    """How many training steps p takes from start to end."""
    cap: int = 32
    """The run of non-boundary tokens after which the author is redrawn all the same."""
    training_step: int = 0
    """The trainer's step."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "p_start", check_probability("p_start", self.p_start))
        object.__setattr__(self, "p_end", check_probability("p_end", self.p_end))
        check_count("warmup_steps", self.warmup_steps)
        check_count("cap", self.cap)
        check_index("training_step", self.training_step)

    @property
    def p(self) -> float:
        """The probability that a redraw gives the senior, at this step."""
        progress = min(self.training_step / self.warmup_steps, 1.0)
        return (1.0 - progress) * self.p_start + progress * self.p_end

    def start(self, u: Tensor) -> Tensor:
        return u < self.p

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        redraw = is_boundary | (run >= self.cap)
        return (redraw & (u < self.p)) | (~redraw & author), (run + 1) * ~redraw
