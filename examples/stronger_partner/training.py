"""The light loop of the study with a partner: GRPO over the tokens that the senior wrote."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from light.generate import Responses, generate
from light.grpo import advantages, policy_loss
from light.model import LanguageModel, Shape
from light.task import LONGEST, Task
from light.teach import teach
from torch import Tensor
from two_notations.problem import Problem, draw_problems
from two_notations.taught_text import Facts, Teaching

from stronger_partner.methods import Method, Sizes
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.rules import TandemRules
from tandem_plugin.seeds import derive_seed
from tandem_plugin.training.imitation import imitation_loss

__all__ = ["accuracy", "taught", "train"]


@lru_cache(maxsize=1)
def held_out(count: int) -> tuple[Problem, ...]:
    """Problems that no model is taught or trained on."""
    return tuple(draw_problems(count, seed=17))


def taught(task: Task, sizes: Sizes, folder: Path) -> tuple[LanguageModel, LanguageModel]:
    """The weak senior and the strong partner; taught once, and kept in the folder.

    The senior saw few of the study's worked solutions, with their mistakes and in both notations;
    its partner many without mistakes, in plain words.
    """
    without = frozenset(held_out(sizes.problems))
    weak = Teaching(Facts.draw(1001), jargon=0.5)
    strong = Teaching(Facts({}), jargon=0.0, slips=0.0)
    models = []
    for place, (teaching, steps) in enumerate(zip((weak, strong), sizes.lessons, strict=True)):
        file = folder / f"model-{place}-{steps}.pt"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(teach(task, teaching, steps, 7 + place, without).state_dict(), file)
        model = LanguageModel(Shape(task.size))
        model.load_state_dict(torch.load(file, weights_only=True))
        models.append(model.eval())
    return models[0], models[1]


def accuracy(task: Task, model: LanguageModel, problems: int, seed: int) -> float:
    """pass@1 of a model alone at temperature 1, one response to each held-out problem."""
    asked = list(held_out(problems))
    noise = torch.Generator().manual_seed(derive_seed(seed, "held out"))
    answers = generate(model, None, task.prompts(asked), LONGEST, task.end, noise)
    return float(task.rewards(answers.token_ids(), asked).mean())


def train(
    task: Task,
    start: LanguageModel,
    partner: LanguageModel,
    method: Method,
    seed: int,
    sizes: Sizes,
    on_step: Callable[[int, LanguageModel], None],
) -> None:
    """Train a copy of ``start``; ``on_step`` gets the number of steps done and the copy."""
    senior = copy.deepcopy(start).train()
    optimizer = torch.optim.AdamW(senior.parameters(), lr=sizes.learning_rate, weight_decay=0.01)
    rules = _rules(task, method)
    pool = draw_problems(5000, 23, frozenset(held_out(sizes.problems)))
    order, noise = random.Random(seed), torch.Generator().manual_seed(derive_seed(seed, "noise"))
    for step in range(1, sizes.steps + 1):
        rows = [one for one in order.sample(pool, sizes.prompts) for _ in range(sizes.group)]
        rule = None if rules is None else rules.at(step - 1)
        seeds = [derive_seed(seed, step, row) for row in range(len(rows))] if rule else []
        made = generate(senior, partner, task.prompts(rows), LONGEST, task.end, noise, rule, seeds)
        rewards = torch.from_numpy(task.rewards(made.token_ids(), rows)).float()
        weights = advantages(rewards.view(-1, sizes.group)).view(-1, 1) * float(method.rewarded)
        weights = weights.expand(-1, made.written.shape[1])
        if method.partner_kl:
            # As the trainers' term: log p of the senior as it sampled, less its partner's.
            with torch.no_grad():
                theirs = _log_probs(partner, made, slice(None))
            weights = weights - method.partner_kl * (made.log_probs - theirs)
        shuffled = np.random.default_rng(derive_seed(seed, "order", step)).permutation(len(rows))
        for chosen in torch.from_numpy(shuffled).chunk(sizes.updates):
            loss = _loss(senior, made, chosen, weights[chosen], method, sizes.clip)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(senior.parameters(), 1.0)
            optimizer.step()
        on_step(step, senior)


def _rules(task: Task, method: Method) -> TandemRules | None:
    if not method.tandem:
        return None
    config = TandemConfig.from_mapping(method.tandem)
    return TandemRules(config, Vocabulary.from_tokenizer(task.tokenizer))


def _loss(
    senior: LanguageModel,
    made: Responses,
    chosen: Tensor,
    weights: Tensor,
    method: Method,
    clip: float,
) -> Tensor:
    """The clipped loss over the senior's tokens, and the imitation of the partner's."""
    log_probs = _log_probs(senior, made, chosen)
    trained = (made.written & made.senior)[chosen]
    losses = policy_loss(log_probs, made.log_probs[chosen], weights, clip)
    loss = losses.masked_fill(~trained, 0.0).sum() / trained.sum().clamp(min=1)
    if method.imitation:
        partners = (made.written & ~made.senior)[chosen]
        term = imitation_loss(log_probs, partners, partners.sum(), ranks=1)
        loss = loss + method.imitation * term
    return loss


def _log_probs(model: LanguageModel, made: Responses, chosen: Tensor | slice) -> Tensor:
    """log p of each response token: float32 ``[rows, longest]``."""
    ids, start = made.ids[chosen], made.prompt_length
    logits = model(ids[:, :-1])[:, start - 1 :]
    return logits.gather(-1, ids[:, start:, None]).squeeze(-1) - logits.logsumexp(-1)
