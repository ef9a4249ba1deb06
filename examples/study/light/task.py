"""Problems and responses as token ids, and what the product's grading says of a response."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from two_notations.notation import JARGON, PLAIN
from two_notations.problem import Problem
from two_notations.tokenizer import make_tokenizer

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.grading import grade
from tandem_plugin.rules import Rule, TandemRules

__all__ = ["LONGEST", "Task"]

LONGEST = 29
"""Tokens of a response at most; a whole solution has 25."""


class Task:
    """The tokenizer and what follows from it."""

    def __init__(self) -> None:
        self.tokenizer: Any = make_tokenizer()
        self.size = len(self.tokenizer)
        self.end = int(self.tokenizer.eos_token_id)
        self._texts = [self.tokenizer.decode([token]) for token in range(self.size)]
        self._vocabulary = Vocabulary.from_tokenizer(self.tokenizer)

    def rule(self, schedule: str) -> Rule:
        """A schedule of the product's, with its own parameters, over this vocabulary."""
        return TandemRules(TandemConfig(schedule=schedule), self._vocabulary).default

    def ids(self, text: str) -> list[int]:
        """A text's tokens; raises ValueError for one with words that the tokenizer lacks."""
        return self.batch_ids([text])[0]

    def batch_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, by one call of the tokenizer: a call costs more than a text."""
        rows: list[list[int]] = self.tokenizer(list(texts)).input_ids
        for text, ids in zip(texts, rows, strict=True):
            if self.tokenizer.unk_token_id in ids:
                raise ValueError(f"The tokenizer does not know all words of {text!r}.")
        return rows

    def prompts(self, problems: Sequence[Problem]) -> torch.Tensor:
        """int64 ``[problems, length]``: prompts of this task have one length."""
        asked = list(dict.fromkeys(problems))
        ids = dict(zip(asked, self.batch_ids([one.question for one in asked]), strict=True))
        return torch.tensor([ids[problem] for problem in problems])

    def text(self, ids: Sequence[int]) -> str:
        """What a response says, without what ends it."""
        return "".join(self._texts[token] for token in ids if token != self.end)

    def rewards(
        self, responses: Sequence[Sequence[int]], problems: Sequence[Problem]
    ) -> np.ndarray:
        """float64 ``[responses]``: 1 where the product's grader takes the answer, else 0."""
        return np.array(
            [
                _reward(self.text(response), str(problem.answer))
                for response, problem in zip(responses, problems, strict=True)
            ]
        )

    def jargon_share(self, counts: np.ndarray) -> float:
        """The share of the jargon among the words for numbers; counts: of tokens ``[V]``."""
        plain, jargon = (
            sum(counts[self.ids(f" {word}")[0]] for word in notation.numbers)
            for notation in (PLAIN, JARGON)
        )
        return float(jargon / max(plain + jargon, 1))


@functools.lru_cache(maxsize=200_000)
def _reward(text: str, answer: str) -> float:
    return grade(text, answer).reward
