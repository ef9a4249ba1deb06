"""GRPO as the trainers have it: on responses of the senior's, with a KL loss towards the junior, or
of a team's."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from light.model import LanguageModel
from light.responses import Responses, generate
from light.task import Problem, Task
from tandem_plugin.rules import Rule
from tandem_plugin.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Method:
    """How a senior is trained. schedule: of the team that writes with the junior; None: alone.
    kl: the coefficient of a KL loss towards the junior. alone: the share of the responses that the
    senior writes alone. repeat: trainings of one method differ in it, and so in their seeds."""

    name: str
    schedule: str | None = None
    kl: float = 0.0
    alone: float = 0.0
    repeat: int = 0

    @property
    def is_cowritten(self) -> bool:
        """Whether the junior writes, too: under ``solo-word`` it does not."""
        return self.schedule not in (None, "solo-word")

    @property
    def needs_junior(self) -> bool:
        """Whether the training depends on the junior."""
        return self.is_cowritten or self.kl > 0

    def rule(self, task: Task) -> Rule | None:
        """Who writes, or whose tokens are trained; None: the senior, and all."""
        if self.schedule is None:
            return None
        return task.rule(self.schedule, **({"alone": self.alone} if self.alone else {}))


GRPO = Method("GRPO")
HALF = Method("GRPO on half of its tokens", schedule="solo-word")
TANDEM = Method("tandem", schedule="word")
KL_REGS = tuple(Method(f"KL-Reg {kl:g}", kl=kl) for kl in (0.02, 0.05, 0.2))
"""GRPO with a KL loss towards the junior, with several coefficients: the paper gives none."""


@dataclass(frozen=True, slots=True)
class Optimization:
    """Sizes and rates, the same for every method."""

    steps: int
    prompts: int
    group: int = 8
    learning_rate: float = 2e-4
    warmup: int = 3
    updates: int = 2
    clip: float = 0.2
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a training. senior: the model after it, which the next step changes. reward: the
    mean over its responses. trained: how many tokens its loss counted."""

    number: int
    senior: LanguageModel
    reward: float
    trained: int


def train(
    task: Task,
    start: LanguageModel,
    method: Method,
    problems: list[Problem],
    seed: int,
    sizes: Optimization,
    junior: LanguageModel | None = None,
) -> Iterator[Step]:
    """Train a copy of ``start`` beside a junior, by default beside itself, step by step.

    Advantages, clipping, the mean over a mini-batch's trained tokens, the KL estimate and AdamW are
    those of verl's GRPO at its defaults.
    """
    senior, junior = copy.deepcopy(start).train(), junior or start
    writer = junior if method.is_cowritten else None
    optimizer = torch.optim.AdamW(senior.parameters(), lr=sizes.learning_rate, weight_decay=0.01)
    rule = method.rule(task)
    order = random.Random(seed)
    noise = torch.Generator().manual_seed(derive_seed(seed, "noise"))
    for step in range(1, sizes.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = sizes.learning_rate * min(1.0, step / max(1, sizes.warmup))
        asked = order.sample(problems, sizes.prompts)
        rows = [problem for problem in asked for _ in range(sizes.group)]
        seeds = [derive_seed(seed, step, row) for row in range(len(rows))] if rule else []
        prompts, temperature = task.prompts(rows), sizes.temperature
        responses = generate(
            senior, writer, prompts, task.longest, task.end, noise, rule, seeds, temperature
        )
        rewards = torch.from_numpy(task.rewards(responses.token_ids(), rows)).float()
        trained = responses.written & _replayed(responses, rule, seeds)
        weights = advantages(rewards.view(-1, sizes.group)).flatten()
        anchor = None
        if method.kl:
            with torch.no_grad():
                anchor = _of_tokens(junior, responses.ids, responses.prompt_length, temperature)
        shuffled = torch.from_numpy(
            np.random.default_rng(derive_seed(seed, "order", step)).permutation(sizes.prompts)
        )
        for part in shuffled.chunk(sizes.updates):
            chosen = (part[:, None] * sizes.group + torch.arange(sizes.group)).flatten()
            _update(senior, optimizer, responses, chosen, trained, weights, anchor, method, sizes)
        yield Step(step, senior, float(rewards.mean()), int(trained.sum()))


def advantages(rewards: Tensor) -> Tensor:
    """(reward - mean) / (standard deviation + 1e-6) within each group, ``[groups, group]``."""
    spread = rewards.std(dim=1, keepdim=True)
    return (rewards - rewards.mean(dim=1, keepdim=True)) / (spread + 1e-6)


def policy_loss(log_probs: Tensor, old: Tensor, weights: Tensor, clip: float) -> Tensor:
    """The clipped loss of each token; weights: the advantages, of a shape that broadcasts."""
    ratio = (log_probs - old).exp()
    return -torch.minimum(ratio * weights, ratio.clamp(1 - clip, 1 + clip) * weights)


def low_variance_kl(log_probs: Tensor, anchor: Tensor) -> Tensor:
    """The estimate of KL(senior || junior) at each token, k3 of Schulman (2020), clamped as verl
    clamps it."""
    difference = (anchor - log_probs).clamp(-20, 20)
    return (difference.exp() - difference - 1).clamp(-10, 10)


def _replayed(responses: Responses, rule: Rule | None, seeds: list[int]) -> Tensor:
    """Who wrote each token by replay, which must be what generation says, to the bit."""
    if rule is None:
        return torch.ones_like(responses.written)
    senior = torch.zeros_like(responses.written)
    for row, found in enumerate(rule.replay_batch(responses.token_ids(), seeds)):
        senior[row, : len(found.senior)] = torch.from_numpy(np.array(found.senior))
    if not torch.equal(senior, responses.senior & responses.written):
        raise RuntimeError("The record of who wrote what differs from its replay.")
    return senior


def _of_tokens(model: LanguageModel, ids: Tensor, start: int, temperature: float) -> Tensor:
    """log p of each response token: ``[batch, longest]``."""
    logits = model.response_logits(ids, start) / temperature
    return logits.gather(-1, ids[:, start:, None]).squeeze(-1) - logits.logsumexp(-1)


def _update(
    senior: LanguageModel,
    optimizer: torch.optim.Optimizer,
    responses: Responses,
    chosen: Tensor,
    trained: Tensor,
    weights: Tensor,
    anchor: Tensor | None,
    method: Method,
    sizes: Optimization,
) -> None:
    log_probs = _of_tokens(
        senior, responses.ids[chosen], responses.prompt_length, sizes.temperature
    )
    # What was sampled from is what is trained: no second pass is needed for the old ones.
    losses = policy_loss(log_probs, responses.log_probs[chosen], weights[chosen, None], sizes.clip)
    if anchor is not None:
        losses = losses + method.kl * low_variance_kl(log_probs, anchor[chosen])
    mask = trained[chosen].float()
    loss = (losses * mask).sum() / mask.sum().clamp(min=1)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(senior.parameters(), 1.0)
    optimizer.step()
