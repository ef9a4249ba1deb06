"""Teaching a model from nothing: next-token prediction of worked solutions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection

import torch
from torch.nn.functional import cross_entropy

from light.model import LanguageModel, Shape
from light.problem import Problem, draw_problem
from light.task import Task
from light.taught_text import Teaching

__all__ = ["teach"]


def teach(
    task: Task,
    teaching: Teaching,
    steps: int,
    seed: int,
    without: Collection[Problem] = (),
    batch: int = 64,
    learning_rate: float = 3e-3,
    on_step: Callable[[int, float], None] | None = None,
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
    for step in range(steps):
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
        if on_step is not None:
            on_step(step + 1, float(loss.detach()))
    return model.eval()


def _factor(step: int, steps: int, warmup: int = 50) -> float:
    rising = min(1.0, (step + 1) / warmup)
    return rising * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
