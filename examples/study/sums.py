"""What the study on a real model trains and measures: its task, its model and its evaluation.

Task and model have the interface of the toy study's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from light.responses import Evaluation, Responses, legibility
from light.task import Tokens
from torch import Tensor, nn

from tandem_plugin.grading import grade
from tandem_plugin.lab.data.problem import Problem, prompt_ids
from tandem_plugin.lab.evaluation.drift import kl_divergence, token_counts
from tandem_plugin.rules import Rule

TEAMS = ("word", "step", "step-bernoulli")
"""Schedules of the evaluated teams. A step is a sentence: SmolLM2 writes a blank line as two
tokens, and the answers here are two sentences in one line."""
HANDOVERS = (2, 5)
"""Word boundaries after which the junior finishes the senior's response, each on half of the
problems: within the sum, and once its result is written. How often it is right is the mean of H_t
(appendix C of the paper, which does not measure it) over these places."""
MEASURES = {
    "solo": "alone",
    "word": "team, `word`",
    "step": "team, `step`",
    "step-bernoulli": "team, `step-bernoulli`",
    "handover": "junior finishes",
    "cross_entropy": "junior's cross-entropy",
    "entropy": "senior's entropy",
    "kl": "KL by position",
    "overlap": "overlap",
    "accepted-word": "accepted, `word`",
    "accepted-step": "accepted, `step`",
    "drift": "drift",
}
"""Accepted: the share of the junior's drafts that the senior would accept in the speculative mode,
which is the overlap at the places in a team's responses where the senior is the author."""


class Sums(Tokens):
    """The tokenizer, the problems as token ids, and the rewards of responses."""

    longest = 24

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        super().__init__(AutoTokenizer.from_pretrained(folder))

    def rule(self, schedule: str, **settings: Any) -> Rule:
        if schedule.startswith("step"):
            settings["boundaries"] = "sentence"
        return super().rule(schedule, **settings)

    def handover(self, after: int) -> Rule:
        """The senior writes up to a word boundary, the junior the rest."""
        return self.rule("handover", first="senior", after=after, boundaries="word")

    def prompts(self, problems: Sequence[Problem]) -> Tensor:
        """int64 ``[problems, length]``: sums of one-digit numbers have prompts of one length."""
        return torch.tensor([prompt_ids(one.messages, self.tokenizer) for one in problems])

    def rewards(self, responses: Sequence[Sequence[int]], problems: Sequence[Problem]) -> Any:
        """float64 ``[responses]``: 1 where the scorer of reasoning-gym takes the box, else 0."""
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in responses]
        pairs = zip(texts, problems, strict=True)
        return np.array([grade(text, problem.golds).reward for text, problem in pairs])


class HFModel(nn.Module):
    """A Hugging Face model with the toy study's interface. Prompts of a batch have one length."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def new_cache(self, batch: int, length: int) -> Any:
        from transformers import DynamicCache

        return DynamicCache()

    def forward(self, ids: Tensor, cache: Any = None) -> Tensor:
        """Logits: float32 ``[batch, length, V]``, with a cache of the last position alone.

        Repeats of a prompt, as GRPO's groups have them, are read once.
        """
        if cache is None:
            return self.model(input_ids=ids, use_cache=False).logits
        rows, counts = torch.unique_consecutive(ids, dim=0, return_counts=True)
        repeats = int(counts[0])
        if cache.get_seq_length() or repeats == 1 or (counts != repeats).any():
            rows, repeats = ids, 1
        logits = self.model(input_ids=rows, past_key_values=cache, logits_to_keep=1).logits
        if repeats > 1:
            cache.batch_repeat_interleave(repeats)
        return logits.repeat_interleave(repeats, dim=0)

    def response_logits(self, ids: Tensor, start: int) -> Tensor:
        """Of each token behind a prompt of ``start`` tokens: float32 ``[batch, responses, V]``.

        With its gradients, and the prompt of a group is read once.
        """
        cache = self.new_cache(*ids.shape)
        first = self(ids[:, :start], cache)
        rest = self.model(input_ids=ids[:, start:-1], past_key_values=cache).logits
        return torch.cat((first, rest), dim=1)


class SumsEvaluation(Evaluation):
    """Accuracy alone and of teams, legibility to the junior, and drift from it, at temperature 1.

    Every method of a seed is evaluated with the same random numbers. The junior's own tokens are
    drawn with others: as taught, where both are one model, drift is that of noise alone, its null.
    Drift is smoothed by one token over the whole vocabulary, for so few are counted.
    """

    purpose = ("evaluation",)

    def __init__(
        self,
        task: Sums,
        junior: Any,
        problems: Sequence[Problem],
        seed: int,
        juniors: list[list[int]] | None = None,
    ) -> None:
        """juniors: token ids of the junior's own responses, generated here if there are none."""
        super().__init__(task, problems, seed)
        self.junior = junior
        self.vocabulary = int(junior.model.config.vocab_size)
        self.juniors = juniors or self.answers("junior", junior).token_ids()
        self._counts = token_counts(self.juniors, self.vocabulary)

    @torch.no_grad()
    def measure(self, senior: Any) -> dict[str, float]:
        """The :data:`MEASURES` of a senior, and the mean length of its responses in tokens."""
        alone = self.answers("solo", senior)
        read = legibility(senior, self.junior, alone.ids, alone.written)
        parts = [self.problems[place :: len(HANDOVERS)] for place in range(len(HANDOVERS))]
        finished = [
            self._solved(
                self.answers("handover", senior, self.junior, self.task.handover(after), part), part
            )
            for after, part in zip(HANDOVERS, parts, strict=True)
        ]
        teams = {
            team: self.answers(team, senior, self.junior, self.task.rule(team)) for team in TEAMS
        }
        accepted = {}
        for team in (team for team in TEAMS if f"accepted-{team}" in MEASURES):
            ids, places = teams[team].ids, teams[team].written & teams[team].senior
            accepted[f"accepted-{team}"] = legibility(senior, self.junior, ids, places)["overlap"]
        counts = token_counts(alone.token_ids(), self.vocabulary)
        return {
            "solo": self._solved(alone),
            **{team: self._solved(responses) for team, responses in teams.items()},
            "handover": float(np.mean(finished)),
            **read,
            **accepted,
            "drift": kl_divergence(counts, self._counts, smoothing=1 / self.vocabulary),
            "tokens": float(alone.lengths.float().mean()),
        }

    def _solved(self, responses: Responses, part: Sequence[Problem] = ()) -> float:
        return float(self.task.rewards(responses.token_ids(), part or self.problems).mean())
