"""One problem of a set, and how it is presented to a model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tandem_plugin.errors import DataError

__all__ = [
    "INSTRUCTION",
    "BadRow",
    "Message",
    "Problem",
    "ProblemSet",
    "PromptTemplate",
    "prompt_ids",
    "words_of",
]

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
"""Asks for a final answer in a box, as the paper does in words that it does not give."""

_INSTRUCTED = re.compile(
    r"\\boxed ?\{ ?\}|(?:within|inside|in|using|with|into) (?:an? )?[$`'\"]?\\boxed", re.IGNORECASE
)
"""Text that asks for a box. A problem may hold boxes of its own, such as solved parts."""

_WORD = re.compile(r"[^\W_]+")

Message = dict[str, str]
"""A chat turn: ``role`` and ``content``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and all of its correct answers."""

    row: int
    """The row of its source, counted from 1; the line of a JSONL file."""
    messages: tuple[Message, ...]
    """The chat that asks it, as the source has it: without instruction where that has none."""
    golds: tuple[str, ...]
    """Never empty, but where the reader was told that answers may be missing."""
    raw: str | None = None
    """The text as its row has it, white space included; None for a chat."""

    @property
    def text(self) -> str:
        """The text of the last turn."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is not a valid problem."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """The problems of one source, in order, and its invalid rows."""

    name: str
    problems: tuple[Problem, ...]
    bad_rows: tuple[BadRow, ...] = ()

    def __len__(self) -> int:
        return len(self.problems)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The prompt around a problem; :class:`DataError` for a template without ``{problem}``."""

    template: str = "{problem}\n{instruction}"
    """The user's turn; ``{problem}`` and ``{instruction}`` stand for themselves."""
    instruction: str = INSTRUCTION
    system: str | None = None
    """A turn of the system before all others; None where the problem's own is to stay."""
    always: bool = False
    """Whether a problem whose own turns ask for a box is instructed all the same, and its text kept
    to the white space; one that has this very instruction already never is."""

    def __post_init__(self) -> None:
        if "{problem}" not in self.template:
            raise DataError("TP713", template=self.template)

    def messages(self, problem: Problem) -> list[Message]:
        """The chat that asks the problem.

        A problem whose own turns ask for a boxed answer keeps them unchanged.
        """
        *before, last = [dict(turn) for turn in problem.messages]
        text = self.template.replace("{instruction}", self.instruction)
        if self.always:
            if self.instruction not in last["content"]:
                asked = last["content"] if problem.raw is None else problem.raw
                last["content"] = text.replace("{problem}", asked)
        elif not any(_INSTRUCTED.search(turn["content"]) for turn in problem.messages):
            last["content"] = text.replace("{problem}", last["content"]).strip()
        if self.system is not None:
            before = [turn for turn in before if turn["role"] != "system"]
            before.insert(0, {"role": "system", "content": self.system})
        return [*before, last]


def prompt_ids(messages: Sequence[Message], tokenizer: Any) -> list[int]:
    """The token ids of a chat as the model's input.

    tokenizer: a Hugging Face tokenizer. One without a chat template belongs to a base model, which
    continues the turns as one text.
    """
    if getattr(tokenizer, "chat_template", None):
        ids = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_dict=False
        )
    else:
        ids = tokenizer.encode("\n\n".join(turn["content"] for turn in messages))
    return list(ids)


def words_of(problem: Problem) -> tuple[str, ...]:
    """The words and numbers of a problem in lower case, without lines that ask for a box."""
    turns = [turn["content"] for turn in problem.messages if turn["role"] == "user"]
    lines = "\n".join(turns or [problem.text]).split("\n")
    kept = [line for line in lines if not _INSTRUCTED.search(line)]
    text = "\n".join(kept or lines).replace(INSTRUCTION, "").strip()
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
