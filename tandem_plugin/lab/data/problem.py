"""One problem of a set, and the set it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BadRow", "Message", "Problem", "ProblemSet"]

Message = dict[str, str]
"""A chat turn: ``role`` and ``content``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and every answer that is right."""

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
        """What the last turn says."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no problem."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """The problems of one source, in its order, and the rows that are none."""

    name: str
    problems: tuple[Problem, ...]
    bad_rows: tuple[BadRow, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.problems)
