"""A Bernoulli redraw at the ends of reasoning steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tandem_plugin.schedules.bernoulli import BernoulliSchedule

__all__ = ["StepBernoulliSchedule"]


@dataclass(frozen=True, slots=True)
class StepBernoulliSchedule(BernoulliSchedule):
    """Redraw the author after every token that contains a blank line: at the end of a step."""

    name: ClassVar[str] = "step-bernoulli"
    boundaries: ClassVar[str] = "step"
