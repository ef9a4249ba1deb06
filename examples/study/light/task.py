"""The tokenizer, problems and responses as token ids, and what grading says of a response."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from light.problem import BOTH, JARGON, OPERATIONS, PLAIN, Problem
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.grading import grade
from tandem_plugin.rules import Rule, TandemRules

LONGEST = 36
"""Tokens of a response at most; a whole solution has 32."""
_UNKNOWN, _PAD, _END = "<|unknown|>", "<|endoftext|>", "<|im_end|>"
_PIECES = r" ?\\boxed\{\}|\\boxed\{|\}| ?\p{L}+|\p{N}|\n\n|\n|\s+|."
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


class Task:
    """The tokenizer and what follows from it."""

    longest = LONGEST

    def __init__(self) -> None:
        self.tokenizer: Any = _make_tokenizer()
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


def _make_tokenizer() -> Any:
    """A Hugging Face fast tokenizer of sixty words, shaped like Qwen's: a word keeps its space.

    Text of other words is unknown to it.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["Compute", r" \boxed{}", "\n", "\n\n", r"\boxed{", "}", " is"]
    words += [f" {name}" for name in OPERATIONS]
    for notation in BOTH:
        words += [*notation.openings, *(f" {number}" for number in notation.numbers)]
    words += [str(digit) for digit in range(10)]
    pieces = [_UNKNOWN, _PAD, _END, *(_piece(word) for word in words)]
    core = Tokenizer(
        models.WordLevel({piece: place for place, piece in enumerate(pieces)}, unk_token=_UNKNOWN)
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=_END,
        pad_token=_PAD,
        unk_token=_UNKNOWN,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _piece(word: str) -> str:
    """A word as byte-level vocabularies write it."""
    return word.replace(" ", "Ġ").replace("\n", "Ċ")
