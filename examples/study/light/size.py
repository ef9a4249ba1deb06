"""How large the study is, and what is trained beside what: all of it said before it is run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from light.grpo import Method, Optimization

__all__ = ["GRPO", "KL_COEFFICIENTS", "QUICK", "SELF", "TRL", "WHOLE", "LightSize", "kl_reg"]

SELF = "self"
"""The junior that is the taught senior itself."""

GRPO = Method("GRPO")
TRL = Method("TRL", schedule="word")
KL_COEFFICIENTS = (0.02, 0.05, 0.2)
"""Of KL-Reg's loss towards the junior: around the 0.05 of earlier versions of this study."""


def kl_reg(coefficient: float) -> Method:
    """GRPO with a KL loss towards the junior."""
    return Method(f"KL-Reg {coefficient:g}", kl=coefficient)


@dataclass(frozen=True, slots=True)
class LightSize:
    """exposures: the juniors' share of jargon in what they were taught, and the self-pair. swept:
    the exposure with all of KL-Reg's coefficients; the others have ``KL_COEFFICIENTS[1]``. pairs:
    how many seniors are taught, each with other misconceptions, and juniors beside it.
    """

    exposures: tuple[str, ...] = ("1%", "5%", SELF)
    swept: str = "1%"
    pairs: int = 2
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    senior_lesson: int = 1200
    junior_lesson: int = 900
    training: Optimization = field(default_factory=lambda: Optimization(steps=100, prompts=16))
    evaluate_every: int = 25
    problems: int = 400
    validation_problems: int = 200
    training_problems: int = 20_000

    def settings(self) -> dict[str, Any]:
        """For the file that a study goes on by."""
        return {**asdict(self), "kl_coefficients": KL_COEFFICIENTS}

    def methods(self, exposure: str) -> tuple[Method, ...]:
        """What is compared beside one junior."""
        coefficients = KL_COEFFICIENTS if exposure == self.swept else KL_COEFFICIENTS[1:2]
        return (GRPO, *(kl_reg(one) for one in coefficients), TRL)


WHOLE = LightSize()
QUICK = LightSize(
    exposures=("1%", SELF),
    pairs=1,
    seeds=(1, 2),
    senior_lesson=30,
    junior_lesson=20,
    training=Optimization(steps=2, prompts=2, group=2),
    evaluate_every=1,
    problems=8,
    validation_problems=4,
    training_problems=50,
)
"""Seconds: everything runs, and nothing is learnt."""
