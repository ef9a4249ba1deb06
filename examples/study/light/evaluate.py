"""What is measured of a senior beside its junior: the paper's four axes, on held-out problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from light.generate import Responses, generate
from light.model import LanguageModel
from light.problem import Problem
from light.task import LONGEST, Task
from tandem_plugin.lab.evaluation.drift import kl_divergence, token_counts
from tandem_plugin.lab.evaluation.legibility import chunk_scores
from tandem_plugin.seeds import derive_seed

SCHEDULES = ("step", "step-bernoulli")
"""The team's schedules: the paper's evaluation, and its random form."""

TRAINED_SCHEDULE = "word"


class Evaluation:
    """Evaluates on the same problems, ``samples`` responses to each.

    seed: of the random numbers, which every model evaluated with it shares. Each training seed has
    its own, so that the noise of sampling is part of the errors over seeds.
    """

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
        responses = self._answers(model)
        counts = token_counts(responses.token_ids(), self.task.size)
        return {
            **self._accuracy("solo", responses),
            "jargon": self.task.jargon_share(counts),
            "token_counts": counts.tolist(),
        }, responses

    def beside(
        self, senior: LanguageModel, junior: LanguageModel, alone: Responses, juniors: np.ndarray
    ) -> dict[str, float]:
        """Accuracy of the team, legibility to the junior, and drift from it.

        alone: what the senior wrote alone, which the junior reads. juniors: how often the junior
        writes each token alone, ``[V]``.
        """
        found: dict[str, float] = {}
        for schedule in SCHEDULES:
            found |= self._accuracy(schedule, self._answers(senior, junior, schedule))
        cross_entropy, overlap = self._legibility(senior, junior, alone)
        counts = token_counts(alone.token_ids(), self.task.size)
        kl = kl_divergence(counts, juniors)
        return {**found, "cross_entropy": cross_entropy, "overlap": overlap, "kl": kl}

    def team_accuracy(self, senior: LanguageModel, junior: LanguageModel) -> float:
        """pass@1 of a team under the schedule of training, by which its checkpoint is chosen."""
        team = self._answers(senior, junior, TRAINED_SCHEDULE)
        return self._accuracy("team", team)["team"]

    def _accuracy(self, name: str, responses: Responses) -> dict[str, float]:
        """pass@1, and the share of problems of which a sample is right: pass@samples."""
        rewards = self.task.rewards(responses.token_ids(), self.problems)
        right = rewards.reshape(-1, self.samples)
        return {name: float(right.mean()), f"{name} any": float(right.max(axis=1).mean())}

    @torch.inference_mode()
    def _legibility(
        self, senior: LanguageModel, junior: LanguageModel, responses: Responses
    ) -> tuple[float, float]:
        """The junior's cross-entropy in nats and the overlap, at temperature 1: means over all
        positions of the first responses to each problem."""
        start = responses.prompt_length
        ids, written = responses.ids[:: self.samples], responses.written[:: self.samples]
        ours, theirs = (m(ids[:, :-1])[:, start - 1 :][written] for m in (senior, junior))
        surprise, shared = chunk_scores(ours, theirs, ids[:, start:][written])
        return float(surprise.mean()), float(shared.mean())

    def _answers(
        self,
        senior: LanguageModel,
        junior: LanguageModel | None = None,
        schedule: str | None = None,
    ) -> Responses:
        noise = torch.Generator().manual_seed(derive_seed(self.seed, schedule or "solo"))
        rule = None if schedule is None else self.task.rule(schedule)
        rows = range(len(self.problems)) if rule else ()
        seeds = [derive_seed(self.seed, "team", row) for row in rows]
        prompts = self.task.prompts(self.problems)
        end, temperature = self.task.end, self.temperature
        return generate(senior, junior, prompts, LONGEST, end, noise, rule, seeds, temperature)
