"""Responses of a senior alone or of a team, under the product's schedules and draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from light.model import LanguageModel
from tandem_plugin.draws import draws_table
from tandem_plugin.rules import Rule

__all__ = ["Responses", "generate"]


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
    team = None if rule is None else _Team(rule, seeds, longest)
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


class _Team:
    """Who writes the next token of each response."""

    def __init__(self, rule: Rule, seeds: Sequence[int], longest: int) -> None:
        self._schedule = rule.schedule
        self._is_boundary = torch.tensor(np.array(rule.boundaries.table))
        self._draws = torch.from_numpy(draws_table(list(seeds), longest + 1))
        self.author: Tensor = self._schedule.start(self._draws[:, 0])
        self._run = torch.zeros(len(seeds), dtype=torch.int64)

    def advance(self, tokens: Tensor, place: int) -> None:
        """Choose the author of position ``place`` behind ``tokens``."""
        self.author, self._run = self._schedule.advance(
            self.author, self._run, self._is_boundary[tokens], self._draws[:, place]
        )
