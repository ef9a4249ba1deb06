"""Responses of a senior alone or of a team, under the product's schedules and draws, and what is
measured of them: the paper's four axes, on held-out problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from light.model import LanguageModel
from light.task import Problem, Task
from tandem_plugin._draws import draws_table
from tandem_plugin.lab.evaluation.drift import kl_divergence, token_counts
from tandem_plugin.lab.evaluation.scoring import (
    PositionScores,
    chunk_length,
    chunk_scores,
)
from tandem_plugin.rules import Rule
from tandem_plugin.seeds import derive_seed

SCHEDULES = ("step", "step-bernoulli")
"""The team's schedules: the paper's evaluation, and its random form."""


@dataclass(frozen=True, slots=True)
class Responses:
    """What a batch of prompts was answered with.

    ids: int64 ``[batch, prompt + longest]``, prompts first, filled up with the end token. written:
    bool ``[batch, longest]``, the tokens of responses, their end token among them. senior: bool of
    the same shape, who wrote each. log_probs: float32 of the same shape, of each token under its
    author at the temperature of sampling; 0 where none was written.
    """

    ids: Tensor
    prompt_length: int
    written: Tensor
    senior: Tensor
    log_probs: Tensor

    @property
    def lengths(self) -> Tensor:
        """Tokens of each response: int64 ``[batch]``."""
        return self.written.sum(dim=1)

    def token_ids(self) -> list[list[int]]:
        """The responses alone."""
        rows = self.ids[:, self.prompt_length :].tolist()
        return [row[:length] for row, length in zip(rows, self.lengths.tolist(), strict=True)]


@torch.no_grad()
def generate(
    senior: LanguageModel,
    junior: LanguageModel | None,
    prompts: Tensor,
    longest: int,
    end: int,
    noise: torch.Generator,
    rule: Rule | None = None,
    seeds: Sequence[int] = (),
    temperature: float = 1.0,
) -> Responses:
    """One response to each prompt, by the senior alone where there is no junior.

    prompts: int64 ``[batch, length]``. end: the token that ends a response. rule: who writes, or
    without a junior whose tokens count as the senior's. seeds: the tandem seeds of the responses,
    whose draws share nothing with ``noise``.
    """
    batch, start = prompts.shape
    ids = torch.full((batch, start + longest), end)
    ids[:, :start] = prompts
    written = torch.zeros(batch, longest, dtype=torch.bool)
    by_senior = torch.ones(batch, longest, dtype=torch.bool)
    log_probs = torch.zeros(batch, longest)
    models = [senior] if rule is None or junior is None else [senior, junior]
    caches = [model.new_cache(batch, start + longest) for model in models]
    team = None if rule is None else Team(rule, seeds, longest, prompts.device)
    going = torch.ones(batch, dtype=torch.bool)
    step = prompts
    for place in range(longest):
        logits = [m(step, cache)[:, -1] for m, cache in zip(models, caches, strict=True)]
        author = None if team is None else team.author
        alone = author is None or len(logits) == 1
        chosen = logits[0] if alone else torch.where(author[:, None], *logits)
        chosen = chosen / temperature
        token = (chosen - torch.empty_like(chosen).exponential_(generator=noise).log()).argmax(-1)
        token = torch.where(going, token, end)
        ids[:, start + place] = token
        written[:, place] = going
        own = chosen.gather(-1, token[:, None]).squeeze(-1) - chosen.logsumexp(-1)
        log_probs[:, place] = torch.where(going, own, 0.0)
        if author is not None:
            by_senior[:, place] = author
        going = going & (token != end)
        if not going.any():
            break
        if team is not None:
            team.advance(token, place + 1)
        step = token[:, None]
    kept = int(written.any(dim=0).sum())
    return Responses(
        ids[:, : start + kept], start, written[:, :kept], by_senior[:, :kept], log_probs[:, :kept]
    )


class Team:
    """Who writes the next token of each response: bool ``[responses]``, true for the senior."""

    def __init__(
        self, rule: Rule, seeds: Sequence[int], longest: int, device: torch.device
    ) -> None:
        """seeds: the tandem seed of each response."""
        self._schedule = rule.schedule
        self._is_boundary = torch.tensor(np.array(rule.boundaries.table), device=device)
        self._draws = torch.from_numpy(draws_table(list(seeds), longest + 1)).to(device)
        begun = rule.walk_batch([[]] * len(seeds), list(seeds))
        self.author: Tensor = torch.tensor([walk.author for walk in begun], device=device)
        self._run = torch.tensor([walk.run for walk in begun], device=device)

    def advance(self, tokens: Tensor, place: int) -> None:
        """Choose the author of position ``place`` behind ``tokens``."""
        self.author, self._run = self._schedule.advance(
            self.author, self._run, self._is_boundary[tokens], self._draws[:, place]
        )


class Evaluation:
    """Evaluates on the same problems, ``samples`` responses to each.

    seed: of the random numbers, which every model evaluated with it shares. Each training seed has
    its own, so that the noise of sampling is part of the errors over seeds.
    """

    purpose: tuple[str, ...] = ()
    """What else random numbers are drawn by."""

    def __init__(
        self,
        task: Task,
        problems: Sequence[Problem],
        seed: int,
        samples: int = 1,
        temperature: float = 1.0,
    ) -> None:
        self.task = task
        self.problems = [problem for problem in problems for _ in range(samples)]
        self.seed = seed
        self.samples = samples
        self.temperature = temperature

    def alone(self, model: LanguageModel) -> tuple[dict[str, Any], Responses]:
        """Accuracy of a model alone, the share of jargon, its tokens' counts, and its responses."""
        responses = self.answers("solo", model)
        counts = token_counts(responses.token_ids(), self.task.size)
        return {
            **self._accuracy("solo", responses),
            "jargon": self.task.jargon_share(counts),
            "token_counts": counts.tolist(),
        }, responses

    @torch.inference_mode()
    def beside(
        self, senior: LanguageModel, junior: LanguageModel, juniors: np.ndarray
    ) -> dict[str, Any]:
        """What :meth:`alone` says of the senior but for the counts, accuracy of the team,
        legibility to the junior, and drift from it.

        juniors: how often the junior writes each token alone, ``[V]``.
        """
        found, alone = self.alone(senior)
        for schedule in SCHEDULES:
            rule = self.task.rule(schedule)
            found |= self._accuracy(schedule, self.answers(schedule, senior, junior, rule))
        # Of the first response to each problem.
        ids, written = alone.ids[:: self.samples], alone.written[:: self.samples]
        drift = kl_divergence(np.array(found.pop("token_counts")), juniors)
        return {**found, **legibility(senior, junior, ids, written), "drift": drift}

    def accuracy(self, senior: LanguageModel, junior: LanguageModel, schedule: str | None) -> float:
        """pass@1 of a team, or without a schedule of the senior alone."""
        rule = None if schedule is None else self.task.rule(schedule)
        return self._accuracy("", self.answers(schedule or "solo", senior, junior, rule))[""]

    def _accuracy(self, name: str, responses: Responses) -> dict[str, float]:
        """pass@1."""
        rewards = self.task.rewards(responses.token_ids(), self.problems)
        return {name: float(rewards.mean())}

    def answers(
        self,
        name: str,
        senior: LanguageModel,
        junior: LanguageModel | None = None,
        rule: Rule | None = None,
        part: Sequence[Problem] = (),
    ) -> Responses:
        """A response to each problem, of a part of them if it is given; with a rule, of the team.

        name: what the random numbers are drawn by.
        """
        problems, task = part or self.problems, self.task
        noise = torch.Generator().manual_seed(derive_seed(self.seed, *self.purpose, name))
        rows = range(len(problems)) if rule else ()
        seeds = [derive_seed(self.seed, "team", row) for row in rows]
        prompts, longest, end = task.prompts(problems), task.longest, task.end
        return generate(senior, junior, prompts, longest, end, noise, rule, seeds, self.temperature)


def legibility(
    senior: LanguageModel, junior: LanguageModel, ids: Tensor, places: Tensor
) -> dict[str, float]:
    """The junior's cross-entropy, the senior's entropy and KL(senior || junior) in nats, and the
    overlap, at temperature 1: means over places.

    places: bool ``[batch, responses]``, of the responses' tokens, with which ``ids`` end.
    """
    start = ids.shape[1] - places.shape[1]
    logits = [model.response_logits(ids, start)[places] for model in (senior, junior)]
    whole = (*logits, ids[:, start:][places])
    chunk = chunk_length(logits[0].shape[1])
    parts = zip(*(one.split(chunk) for one in whole), strict=True)
    scores = zip(*(chunk_scores(*part) for part in parts), strict=True)
    means = (float(torch.cat(one).mean()) for one in scores)
    return dict(zip(PositionScores._fields, means, strict=True))
