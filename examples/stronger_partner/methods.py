"""What is compared: ways of learning from a stronger partner, and GRPO without one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["METHODS", "Method", "Sizes"]

_RISING = {"p_start": 0.25, "p_end": 1.0, "warmup_steps": 20}


@dataclass(frozen=True, slots=True)
class Method:
    """How a weak senior is trained beside its partner.

    tandem: the settings of the schedule, as a trainer is given them; empty where the senior writes
    alone. imitation: ``lambda_jun``. partner_kl: ``partner_kl_coef``. rewarded: whether the
    verifiable reward is used as well.
    """

    name: str
    tandem: Mapping[str, Any] = field(default_factory=dict)
    imitation: float = 0.0
    partner_kl: float = 0.0
    rewarded: bool = True


_MIXED = {"schedule": "token", "p": 0.5}
_RISES = {"schedule": "curriculum", "boundaries": "every", **_RISING}

METHODS = (
    Method("GRPO"),
    Method("mixed, token, p 0.5", _MIXED),
    Method("mixed, chunk of 8, p 0.5", {"schedule": "chunk", "n": 8, "p": 0.5}),
    Method("mixed, token, p 0.25 to 1", _RISES),
    Method("mixed, p 0.25 to 1, imitation 0.2", _RISES, imitation=0.2),
    Method("GRPO, partner KL 0.2", partner_kl=0.2),
    Method("mixed, p 0.25 to 1, partner KL 0.2", _RISES, partner_kl=0.2),
    Method("partner KL 0.2 alone, no reward", partner_kl=0.2, rewarded=False),
)
"""Chosen before anything was run. p is the senior's; the partner writes the rest."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """lessons: steps that the senior and its partner are taught before. group: responses to each
    prompt. updates: optimizer steps a batch. evaluate_every: training steps.
    """

    lessons: tuple[int, int] = (150, 1000)
    steps: int = 40
    prompts: int = 8
    group: int = 8
    updates: int = 2
    learning_rate: float = 5e-4
    clip: float = 0.2
    evaluate_every: int = 20
    problems: int = 300
