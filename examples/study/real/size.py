"""How large the real part is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from light.grpo import Optimization

from real.demo import Training

__all__ = ["QUICK", "WHOLE", "RealSize"]


@dataclass(frozen=True, slots=True)
class RealSize:
    """``samples`` responses to each held-out problem are drawn alone and under each schedule, and
    ``read`` of them are read for legibility. ``frequent`` and ``top`` are drift's: the vocabulary
    has sixty tokens, of which the paper's 500 would be all.
    """

    methods: tuple[str, ...] = ("GRPO", "KL-Reg 0.05", "TRL")
    exposure: str = "1%"
    pair: int = 1
    training: Training = field(
        default_factory=lambda: Training(
            steps=24,
            prompts=32,
            learning_rate=5e-4,
            max_prompt_length=16,
            max_response_length=29,
            seed=1,
        )
    )
    validate_every: int = 12
    samples: int = 2
    read: int = 1
    frequent: int = 10
    top: int = 20
    max_num_seqs: int = 256

    def settings(self) -> dict[str, Any]:
        """For the file that a study goes on by."""
        return asdict(self)

    def light(self) -> Optimization:
        """The same budget for the light loop."""
        training = self.training
        return Optimization(
            training.steps,
            training.prompts,
            training.group,
            training.learning_rate,
            training.warmup,
        )


WHOLE = RealSize()
QUICK = RealSize(
    training=Training(
        steps=1, prompts=4, group=2, warmup=0, max_prompt_length=16, max_response_length=29, seed=1
    ),
    validate_every=1,
    samples=2,
    read=1,
    frequent=2,
    max_num_seqs=16,
)
"""A few minutes: for tests, and to see whether everything runs. Nothing is learnt."""
