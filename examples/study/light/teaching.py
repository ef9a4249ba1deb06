"""Teaching a model from nothing: next-token prediction of worked solutions, with mistakes.

They are of three kinds. A *slip* is random, and a lower temperature removes it. A *misconception*
belongs to a fact in a notation ("seven times eight" in plain words): the text gets it wrong more
often than not, always in the same way, so that no temperature removes it. A *repair* corrects an
earlier step without saying so. Facts are misconceived as often in one notation as in the other, and
in each by itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from light.model import LanguageModel, Shape
from light.problem import BOTH, OPERATIONS, Notation, Problem, apply, draw_problem
from light.task import Task

_OFF = (1, 2, 3, 7, 8, 9)
"""How far a wrong result is off, modulo 10."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The misconceived facts: their wrong results, by notation, operation and the two numbers."""

    wrong: Mapping[tuple[str, str, int, int], int]

    @classmethod
    def draw(cls, seed: int, share: float = 0.25) -> Facts:
        """share: of the facts that are misconceived in a notation."""
        rng = random.Random(seed)
        wrong = {}
        for notation in BOTH:
            for operation in OPERATIONS:
                for left in range(10):
                    for right in range(1, 10):
                        off = rng.choice(_OFF)
                        if rng.random() < share:
                            result = apply(operation, left, right)
                            wrong[notation.name, operation, left, right] = (result + off) % 10
        return cls(wrong)


@dataclass(frozen=True, slots=True)
class Teaching:
    """How solutions are written. jargon: the share of steps that are in the jargon.

    keeps: how often a step keeps the notation of the one before. slips: how often a step slips.
    believes: how often a misconceived fact is written wrong. repairs: how often a step goes on from
    the right number, and not from the wrong one that was written before it.
    """

    facts: Facts
    jargon: float = 0.5
    keeps: float = 0.7
    slips: float = 0.1
    believes: float = 0.6
    repairs: float = 0.15

    def solution(self, problem: Problem, rng: random.Random) -> str:
        """One worked solution: steps with a blank line behind each, and a boxed answer."""
        notation: Notation | None = None
        true = shown = problem.start
        lines = []
        for operation, number in problem.operations:
            if notation is None or rng.random() >= self.keeps:
                notation = BOTH[rng.random() < self.jargon]
            used = self._carried(true, shown, rng)
            result = self._result(notation, operation, used, number, rng)
            numbers = notation.numbers
            lines.append(
                f"{rng.choice(notation.openings)} {numbers[used]} {operation} {numbers[number]} "
                f"is {numbers[result]}"
            )
            true, shown = apply(operation, true, number), result
        answer = self._carried(true, shown, rng)
        return "\n\n".join([*lines, rf"\boxed{{{answer}}}"])

    def _carried(self, true: int, shown: int, rng: random.Random) -> int:
        return true if shown != true and rng.random() < self.repairs else shown

    def _result(
        self, notation: Notation, operation: str, left: int, right: int, rng: random.Random
    ) -> int:
        result = apply(operation, left, right)
        wrong = self.facts.wrong.get((notation.name, operation, left, right))
        if wrong is not None:
            return wrong if rng.random() < self.believes else result
        return (result + rng.choice(_OFF)) % 10 if rng.random() < self.slips else result


def teach(
    task: Task,
    teaching: Teaching,
    steps: int,
    seed: int,
    without: Collection[Problem] = (),
    batch: int = 64,
    learning_rate: float = 3e-3,
) -> LanguageModel:
    """A fresh model after ``steps`` of AdamW with warm-up and cosine decay; no problem of
    ``without`` is shown."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model = LanguageModel(Shape(task.size))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _factor(step, steps))
    for _ in range(steps):
        problems, solutions = [], []
        while len(problems) < batch:
            problem = draw_problem(rng)
            if problem not in without:
                problems.append(problem)
                solutions.append(teaching.solution(problem, rng))
        prompts = task.prompts(problems)
        start = prompts.shape[1]
        # solutions of this task have one length
        answers = torch.tensor([[*ids, task.end] for ids in task.batch_ids(solutions)])
        ids = torch.cat((prompts, answers), dim=1)
        logits = model(ids[:, :-1])[:, start - 1 :]
        loss = cross_entropy(logits.flatten(0, 1), ids[:, start:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def _factor(step: int, steps: int, warmup: int = 50) -> float:
    rising = min(1.0, (step + 1) / warmup)
    return rising * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
