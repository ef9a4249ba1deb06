"""How long steps take: from the moments at which their tokens are there, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Pace", "Step", "step_of"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the engine."""

    requests: int
    checked: int | None
    """How many drafts of each request the senior checked; None where requests differed, or
    prompts were read."""
    asked: int
    """How many drafts of each request the junior was then asked for."""

    @property
    def is_steady(self) -> bool:
        """Whether it drafted as many tokens as it checked."""
        return self.requests > 0 and self.checked == self.asked

    def is_like(self, other: Step) -> bool:
        """Whether it had the other's length, and about as many requests."""
        lengths = self.checked, self.asked
        near = 8 * abs(self.requests - other.requests) <= other.requests
        return near and lengths == (other.checked, other.asked)


def step_of(output: Any) -> Step:
    """What a step did, by vLLM's ``SchedulerOutput``."""
    requests, drafted = len(output.num_scheduled_tokens), output.scheduled_spec_decode_tokens
    lengths = {len(drafts) for drafts in drafted.values()} or {0}
    checked: int | None = max(lengths)
    decodes = output.total_num_scheduled_tokens == requests * (max(lengths) + 1)
    if len(lengths) > 1 or len(drafted) not in (0, requests) or not decodes:
        checked = None
    return Step(requests, checked, output.num_spec_tokens_to_schedule)


class Pace:
    """The time of each step that says what a length costs.

    That is one that follows another of the same length and about the same batch size: the device
    had no pause between them, and wherever in the two steps the junior drafted, it drafted as many
    tokens. With asynchronous scheduling a step's tokens are there before its drafts are.
    """

    def __init__(self) -> None:
        self._before: tuple[Step, float] | None = None

    def ended(self, step: Step, now: float) -> float | None:
        """The step's seconds; None where they say nothing. now: seconds of a steady clock."""
        before, self._before = self._before, (step, now)
        if before is None or not (step.is_steady and before[0].is_like(step)):
            return None
        return now - before[1]
