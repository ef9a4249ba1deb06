"""The grader as a reward function of each trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tandem_plugin.grading.grade import OUTCOMES, Grade

__all__ = ["outcome_flags", "prompt_of", "reward_file"]


def outcome_flags(grade: Grade) -> dict[str, float]:
    """``outcome_correct`` and so on, 1.0 or 0.0: their means are the shares of the outcomes."""
    return {f"outcome_{name}": float(grade.outcome == name) for name in OUTCOMES}


def prompt_of(extra_info: Any) -> str | None:
    """The question among what a data set says about a row, or None."""
    if not isinstance(extra_info, dict):
        return None
    texts = (extra_info.get(name) for name in ("question", "problem", "prompt"))
    return next((text for text in texts if isinstance(text, str)), None)


def reward_file(framework: str) -> Path:
    """The file with the reward function of ``verl`` or ``openrlhf``."""
    return Path(__file__).with_name(f"{framework}_reward.py")
