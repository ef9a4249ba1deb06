"""Prompt numbers, which travel to the engines with the prompts' labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tandem_plugin.errors import EngineError
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.calls import Trajectory
from tandem_plugin.training.validation import Answerer


@dataclass(slots=True)
class KeyedLabel:
    """A prompt's label on its way to the engine, with the prompt's number."""

    label: Any
    prompt: int
    step: int = 0
    answerer: Answerer | None = None
    """Of a validation prompt; None in training."""
    samples: int = 0
    """The number of responses begun for the prompt."""

    @classmethod
    def checked(cls, label: Any) -> KeyedLabel:
        """A label that arrived where prompts are answered; :class:`EngineError` without a key."""
        if isinstance(label, cls):
            return label
        raise EngineError("label-without-tandem", label=label)

    def trajectory(self, rules: TandemRules) -> Trajectory:
        """The trajectory of the next response; rules: of its engine."""
        sample, self.samples = self.samples, self.samples + 1
        place = (self.prompt, sample)
        return Trajectory.at(rules, *place, step=self.step, answerer=self.answerer)


@dataclass(slots=True)
class Numbering:
    """Numbers the prompts of training, or of a validation, in the data loader's order."""

    next_prompt: int | None = None
    """Number of prompts drawn; None until the trainer reports where its checkpoint ended."""
    step: int = 1
    """The trainer's step of the next batch, as numbered in its log."""
    answerer: Answerer | None = None
    """Of a validation's prompts; None in training."""

    def validating(self, answerer: Answerer) -> Numbering:
        """Numbers of a validation after the last step, with prompts from 0."""
        return Numbering(0, self.step - 1, answerer)

    def keyed(self, labels: Sequence[Any]) -> list[KeyedLabel]:
        """The encoded labels of the next prompts.

        Raises :class:`EngineError` if the number of prompts drawn is not yet known.
        """
        if (first := self.next_prompt) is None:
            raise EngineError("trainer-resume-unknown")
        self.next_prompt = first + len(labels)
        return [
            KeyedLabel(label, prompt, self.step, self.answerer)
            for prompt, label in enumerate(labels, first)
        ]
