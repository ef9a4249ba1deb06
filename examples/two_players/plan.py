"""How long the players train, and what a run of either framework says of each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from game import FEWEST, MOST

Metrics = dict[str, Any]
OnStep = Callable[[int, Metrics], None]
"""Called with each step's number and its metrics, as the trainer logged them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One training: ``prompts`` starts a step, ``group`` games from each, two updates.

    The learning rate rises linearly from 0 over the ``warmup`` first steps.
    """

    steps: int = 40
    prompts: int = 16
    group: int = 8
    learning_rate: float = 7e-4
    warmup: int = 3
    seed: int = 7

    @property
    def games(self) -> int:
        """Games a step."""
        return self.prompts * self.group

    @property
    def update(self) -> int:
        """Games of an update."""
        return max(1, self.prompts // 2) * self.group

    def starts(self) -> list[int]:
        """With how many stones the games of each prompt begin: every start as often as another."""
        span = MOST - FEWEST + 1
        return [FEWEST + place % span for place in range(self.steps * self.prompts)]


@dataclass(frozen=True, slots=True)
class Lengths:
    """The most tokens of a prompt and of a whole game behind it."""

    prompt: int
    response: int

    @property
    def total(self) -> int:
        """Of both."""
        return self.prompt + self.response


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run left: the trained senior, and a folder with the responses of each step."""

    senior: Path
    rollouts: Path
