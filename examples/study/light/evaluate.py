"""What is measured of a senior beside a junior: the paper's four axes, on held-out problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from two_notations.problem import Problem

from light.generate import Responses, generate
from light.model import LanguageModel
from light.task import LONGEST, Task
from tandem_plugin.evaluation.drift import kl_divergence, token_counts
from tandem_plugin.evaluation.legibility import chunk_scores
from tandem_plugin.seeds import derive_seed

__all__ = ["SCHEDULES", "Evaluation", "Reader", "solo_counts"]

SCHEDULES = {"step": "step", "step-bernoulli": "step-bernoulli", "word": "word"}
"""The team's schedules: the paper's evaluation, its random form, and that of training."""


class Reader:
    """A junior, and how often it writes each token when it answers the problems alone."""

    def __init__(
        self, task: Task, junior: LanguageModel, problems: Sequence[Problem], n: int
    ) -> None:
        self.junior = junior
        self.counts = solo_counts(task, junior, problems, n, "junior")


class Evaluation:
    """Evaluates seniors on the same problems with the same random numbers, at temperature 1."""

    def __init__(self, task: Task, problems: Sequence[Problem], samples: int) -> None:
        self.task = task
        self.problems = [one for one in problems for _ in range(samples)]
        self.samples = samples

    def alone(self, senior: LanguageModel) -> tuple[dict[str, Any], Responses]:
        """pass@1 of the senior alone, the share of jargon, and its responses."""
        responses = self._generate(senior, None, None)
        rewards = self.task.rewards(responses.token_ids(), self.problems)
        counts = token_counts(responses.token_ids(), self.task.size)
        return {
            "solo": float(rewards.mean()),
            "jargon": self.task.jargon_share(counts),
        }, responses

    def beside(self, senior: LanguageModel, reader: Reader, alone: Responses) -> dict[str, Any]:
        """pass@1 of the team, legibility to the junior, and drift from it.

        alone: what the senior wrote alone, which the junior reads.
        """
        found: dict[str, Any] = {}
        for name, schedule in SCHEDULES.items():
            team = self._generate(senior, reader.junior, schedule)
            found[name] = float(self.task.rewards(team.token_ids(), self.problems).mean())
        cross_entropy, overlap = self._legibility(senior, reader.junior, alone)
        counts = token_counts(alone.token_ids(), self.task.size)
        found |= {
            "cross_entropy": cross_entropy,
            "overlap": overlap,
            "kl": kl_divergence(counts, reader.counts),
        }
        return found

    def team_accuracy(self, senior: LanguageModel, junior: LanguageModel) -> float:
        """pass@1 under the schedule of training, by which a team's checkpoint is chosen."""
        team = self._generate(senior, junior, "word")
        return float(self.task.rewards(team.token_ids(), self.problems).mean())

    @torch.inference_mode()
    def _legibility(
        self, senior: LanguageModel, junior: LanguageModel, responses: Responses
    ) -> tuple[float, float]:
        """The junior's cross-entropy in nats and the overlap, means over all positions."""
        start, written = responses.prompt_length, responses.written
        ours, theirs = (m(responses.ids[:, :-1])[:, start - 1 :][written] for m in (senior, junior))
        surprise, shared = chunk_scores(ours, theirs, responses.ids[:, start:][written])
        return float(surprise.mean()), float(shared.mean())

    def _generate(
        self, senior: LanguageModel, junior: LanguageModel | None, schedule: str | None
    ) -> Responses:
        return _answers(self.task, senior, junior, self.problems, schedule, "evaluation")


def solo_counts(
    task: Task, model: LanguageModel, problems: Sequence[Problem], samples: int, purpose: str
) -> np.ndarray:
    """How often each token is written in ``samples`` responses to each problem: int64 ``[V]``."""
    rows = [one for one in problems for _ in range(samples)]
    responses = _answers(task, model, None, rows, None, purpose)
    return token_counts(responses.token_ids(), task.size)


def _answers(
    task: Task,
    senior: LanguageModel,
    junior: LanguageModel | None,
    problems: Sequence[Problem],
    schedule: str | None,
    purpose: str,
) -> Responses:
    noise = torch.Generator().manual_seed(derive_seed(0, purpose, schedule or "solo"))
    rule = None if schedule is None else task.rule(schedule)
    seeds = [derive_seed(1, purpose, row) for row in range(len(problems))] if rule else []
    return generate(senior, junior, task.prompts(problems), LONGEST, task.end, noise, rule, seeds)
