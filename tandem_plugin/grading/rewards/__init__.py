"""The grader as a reward function of each trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tandem_plugin.grading.outcomes import OUTCOMES, Grade

__all__ = ["outcome_flags", "prompt_of", "reward_file", "text_of"]


def outcome_flags(grade: Grade) -> dict[str, float]:
    """``outcome_correct`` and so on, 1.0 or 0.0: their means are the shares of the outcomes."""
    return {f"outcome_{name}": float(grade.outcome == name) for name in OUTCOMES}


def prompt_of(extra_info: Any) -> str | None:
    """The question among a row's further fields, or None."""
    if not isinstance(extra_info, dict):
        return None
    texts = (text_of(extra_info.get(name)) for name in ("question", "problem", "prompt"))
    return next((text for text in texts if text.strip()), None)


def text_of(content: Any) -> str:
    """The text of a chat, a message, or a message's parts; empty where there is none."""
    if hasattr(content, "tolist"):
        content = content.tolist()
    if isinstance(content, dict):
        return text_of(content.get("content", content.get("text")))
    if isinstance(content, list | tuple):
        are_turns = any(isinstance(item, dict) and "role" in item for item in content)
        return ("\n\n" if are_turns else "").join(map(text_of, content))
    return content if isinstance(content, str) else ""


def reward_file(framework: str) -> Path:
    """The file with the reward function of ``verl`` or ``openrlhf``."""
    return Path(__file__).with_name(f"{framework}_reward.py")
