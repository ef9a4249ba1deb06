"""Who answers validation prompts: the senior alone, the team, or each of the two in its turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

__all__ = ["TEAM", "Answerer", "answerers"]

Answerer = Literal["senior", "team"]

TEAM = "team/"
"""How the names of the team's metrics begin; the senior's are the trainer's own."""


def answerers(validation: str) -> tuple[Answerer, ...]:
    """Who walks through the validation prompts, in this order.

    validation: the setting ``validation``: senior, team, or both.
    """
    walks: Mapping[str, tuple[Answerer, ...]] = {
        "senior": ("senior",),
        "team": ("team",),
        "both": ("senior", "team"),
    }
    return walks[validation]
