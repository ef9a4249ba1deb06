"""The problems that ``tandem rollout`` asks, with or without their right answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from tandem_plugin.data import DataError, Problem, read_problems
from tandem_plugin.data.problem import Message

__all__ = ["answer", "chat", "digest", "prompt", "read_prompts"]


def read_prompts(source: str) -> tuple[Problem, ...]:
    """The problems of a source, read as :func:`tandem_plugin.data.read_problems` does.

    Right answers may be missing. Raises :class:`DataError` naming the source and the row for a row
    that is no problem: none is left out.
    """
    found = read_problems(source, bad_rows="skip", name=source, golds="optional")
    if found.bad_rows:
        bad, *more = found.bad_rows
        others = f" {len(more):,} more rows are no problems." if more else ""
        raise DataError(f"{source}, row {bad.row}: {bad.reason}{others}")
    return found.problems


def prompt(problem: Problem) -> str | list[Message]:
    """What is asked, as its row has it: a text, white space included, or the turns of a chat."""
    return list(problem.messages) if problem.raw is None else problem.raw


def chat(problem: Problem) -> list[Message]:
    """What is asked, as a chat."""
    asked = prompt(problem)
    return [{"role": "user", "content": asked}] if isinstance(asked, str) else asked


def answer(problem: Problem) -> str | list[str] | None:
    """The right answer, a list where there are several, None where none is known."""
    if len(problem.golds) > 1:
        return list(problem.golds)
    return problem.golds[0] if problem.golds else None


def digest(problems: Sequence[Problem]) -> str:
    """A hash of what is asked, by which a run knows its problems again."""
    asked = json.dumps([prompt(problem) for problem in problems])
    return hashlib.sha256(asked.encode()).hexdigest()[:16]
