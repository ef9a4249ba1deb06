"""How large the study is, and what is trained beside what: all of it said before it is run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from light.grpo import Method, Optimization

__all__ = [
    "GRPO",
    "HALF",
    "KL_COEFFICIENTS",
    "METHODS",
    "QUICK",
    "TRL",
    "WHOLE",
    "LightSize",
    "kl_reg",
]

GRPO = Method("GRPO")
HALF = Method("GRPO on half its tokens", schedule="word", alone=True)
TRL = Method("TRL", schedule="word")
KL_COEFFICIENTS = (0.02, 0.05, 0.2)
"""Of KL-Reg's loss towards the junior: the paper gives none."""


def kl_reg(coefficient: float) -> Method:
    """GRPO with a KL loss towards the junior."""
    return Method(f"KL-Reg {coefficient:g}", kl=coefficient)


METHODS = (GRPO, HALF, *(kl_reg(one) for one in KL_COEFFICIENTS), TRL)


@dataclass(frozen=True, slots=True)
class LightSize:
    """starts: how many models are taught, each with other misconceptions; each is the senior of
    its trainings, and their junior. samples: responses to each problem that is evaluated."""

    starts: int = 8
    seeds: tuple[int, ...] = (1, 2)
    lesson: int = 1500
    misconceived: float = 0.25
    training: Optimization = field(
        default_factory=lambda: Optimization(
            steps=30, prompts=16, learning_rate=3e-5, temperature=0.6
        )
    )
    evaluate_every: int = 15
    problems: int = 200
    samples: int = 8
    validation_problems: int = 200
    training_problems: int = 20_000

    def settings(self) -> dict[str, Any]:
        """For the file by which a study is resumed."""
        return {**asdict(self), "methods": [asdict(method) for method in METHODS]}


WHOLE = LightSize()
QUICK = LightSize(
    starts=2,
    seeds=(1,),
    lesson=20,
    training=Optimization(steps=2, prompts=2, group=2, temperature=0.6),
    evaluate_every=1,
    problems=8,
    samples=2,
    validation_problems=4,
    training_problems=50,
)
"""Seconds: everything runs, and nothing is learnt."""
