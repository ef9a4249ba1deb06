"""The task of the registered comparison: chains of four one-digit terms, worked out line by line in
three wordings that pay nothing; its sizes, and which problems are whose."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from light.grpo import Optimization
from light.task import Tokens
from torch import Tensor

from tandem_plugin.lab.data.problem import prompt_ids
from tandem_plugin.rules import Rule
from tandem_plugin.seeds import derive_seed

TASK = "Work it out line by line and put the final answer within \\boxed{}."
CONTINUED = "continued"
"""The junior finishes what the senior began, after two lines of four."""


@dataclass(frozen=True, slots=True)
class GpuSize:
    """samples: of each schedule, per test problem. taught: batches of 16. micro: responses per
    model whose gradients are computed at once."""

    training: Optimization = field(
        default_factory=lambda: Optimization(steps=60, prompts=32, temperature=0.6, warmup=1)
    )
    taught: int = 200
    evaluate_every: int = 15
    training_problems: int = 8192
    validation_problems: int = 256
    validation_samples: int = 4
    test_problems: int = 512
    samples: tuple[tuple[str, int], ...] = (
        ("solo", 8),
        ("step", 8),
        (CONTINUED, 8),
        ("step-bernoulli", 4),
        ("word", 2),
    )
    rows: int = 256
    micro: int = 8


WHOLE = GpuSize()
QUICK = GpuSize(
    training=Optimization(steps=2, prompts=2, group=2, temperature=0.6, warmup=1),
    taught=3,
    evaluate_every=1,
    training_problems=40,
    validation_problems=4,
    validation_samples=1,
    test_problems=8,
    samples=(("solo", 2), ("step", 1), (CONTINUED, 1), ("step-bernoulli", 1), ("word", 1)),
    rows=8,
    micro=2,
)
"""A minute on a CPU, on randomly initialised models: everything runs, and nothing is learnt."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of four one-digit terms. steps: (before, sign, term, after) of each operation."""

    text: str
    steps: tuple[tuple[int, str, int, int], ...]

    @property
    def answer(self) -> str:
        """The result."""
        return str(self.steps[-1][3])

    def worked(self, rng: random.Random) -> str:
        """A running result per line, each in one of three wordings, then the box."""
        lines = [rng.choice(_WORDINGS)(*step) for step in self.steps]
        return "\n".join([*lines, rf"The answer is \boxed{{{self.answer}}}."])


_WORDINGS: tuple[Callable[[int, str, int, int], str], ...] = (
    lambda old, sign, term, new: f"{old} {sign} {term} = {new}",
    lambda old, sign, term, new: f"{old} {'plus' if sign == '+' else 'minus'} {term} is {new}",
    lambda old, sign, term, new: (
        f"Adding {term} to {old} gives {new}"
        if sign == "+"
        else f"Taking {term} from {old} gives {new}"
    ),
)


def draw_chains(count: int, seed: int) -> list[Chain]:
    """Different chains."""
    rng, drawn = random.Random(seed), dict[str, Chain]()
    while len(drawn) < count:
        first, text, steps = rng.randint(1, 9), "", []
        total = first
        for _ in range(3):
            sign, term = rng.choice("+-"), rng.randint(1, 9)
            new = total + term if sign == "+" else total - term
            steps.append((total, sign, term, new))
            text += f" {sign} {term}"
            total = new
        drawn.setdefault(f"{first}{text}", Chain(f"{first}{text}", tuple(steps)))
    return list(drawn.values())


@dataclass(frozen=True, slots=True)
class Problems:
    """Disjoint chains: those of test and validation are every seed's, the others its own."""

    test: list[Chain]
    validation: list[Chain]
    teaching: list[Chain]
    training: list[Chain]


def split_chains(size: GpuSize, seed: int) -> Problems:
    """The chains of a seed."""
    taught = 16 * size.taught
    counts = (size.test_problems, size.validation_problems, taught, size.training_problems)
    kept_out = sum(counts[:2])
    drawn = draw_chains(sum(counts), 7)
    own = drawn[kept_out:]
    random.Random(derive_seed(seed, "split")).shuffle(own)
    test, validation = drawn[: counts[0]], drawn[counts[0] : kept_out]
    return Problems(test, validation, own[:taught], own[taught:])


class Chains(Tokens):
    """The task: tokenizer, prompts and rewards. A step is a line."""

    longest = 72

    def rule(self, schedule: str, **settings: Any) -> Rule:
        if schedule == CONTINUED:
            schedule, settings = "handover", {"first": "senior", "after": 2, **settings}
        if schedule.startswith(("step", "handover")):
            settings["boundaries"] = "newline"
        return super().rule(schedule, **settings)

    def prompts(self, chains: Sequence[Chain]) -> Tensor:
        """int64 ``[chains, length]``; raises ValueError where their lengths differ."""
        ids = [
            prompt_ids([{"role": "user", "content": f"Compute {one.text}. {TASK}"}], self.tokenizer)
            for one in chains
        ]
        return torch.tensor(ids)

    def answer_ids(self, text: str) -> list[int]:
        """A worked answer and the end of the turn."""
        return [*self.tokenizer.encode(text, add_special_tokens=False), self.end]

    def texts(self, ids: Tensor, written: Tensor) -> list[str]:
        """Of responses ``[rows, tokens]``."""
        lengths = written.sum(1).tolist()
        rows = [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]
        return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))
