"""Where each prompt stands in a run: what its responses' tandem seeds are derived from.

For a trainer that numbers no prompts, and sends each one's label to where it is answered without
looking at it: the number travels with the label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tandem_plugin.errors import EngineError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.trajectory import Trajectory

__all__ = ["KeyedLabel", "Numbering"]

Phase = Literal["training", "validation"]


@dataclass(slots=True)
class KeyedLabel:
    """A prompt's label on its way to the engine, with the prompt's key: its phase and number in it.

    step: the trainer's step for schedules that depend on it. by_team: whether senior and junior
    write it together, as in training always; otherwise the senior answers alone.
    """

    label: Any
    phase: Phase
    prompt: int
    step: int = 0
    by_team: bool = True
    samples: int = 0
    """How many responses to the prompt were begun."""

    @classmethod
    def checked(cls, label: Any) -> KeyedLabel:
        """A label that arrived where prompts are answered; :class:`EngineError` without a key."""
        if isinstance(label, cls):
            return label
        raise EngineError("TP434", label=label)

    def trajectory(self, rules: TandemRules) -> Trajectory:
        """That of one more response; rules: of the engine that it is written in."""
        sample, self.samples = self.samples, self.samples + 1
        (junior,) = rules.config.juniors or (None,)
        place = self.phase, self.prompt, sample
        return Trajectory.begin(rules, place, self.step, self.by_team, junior)


@dataclass(slots=True)
class Numbering:
    """Numbers the prompts of one phase in the order in which the data loader gives them."""

    phase: Phase = "training"
    next_prompt: int | None = None
    """How many prompts were drawn; None until the trainer said where its checkpoint ended."""
    step: int = 1
    """The trainer's step that the next batch is for, as its log numbers it."""
    by_team: bool = True

    def validating(self, by_team: bool) -> Numbering:
        """Of a validation behind the step that ended last, whose prompts count from 0."""
        return Numbering("validation", 0, self.step - 1, by_team)

    def keyed(self, labels: Sequence[Any]) -> list[KeyedLabel]:
        """The labels of the next prompts, as they travel.

        Raises :class:`EngineError` before it is known how many prompts were drawn.
        """
        if (first := self.next_prompt) is None:
            raise EngineError("TP435")
        self.next_prompt = first + len(labels)
        return [
            KeyedLabel(label, self.phase, prompt, self.step, self.by_team)
            for prompt, label in enumerate(labels, first)
        ]
