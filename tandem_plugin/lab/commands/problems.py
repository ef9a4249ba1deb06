"""The problems that ``tandem rollout`` asks, with or without their right answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tandem_plugin.lab.data import INSTRUCTION, DataError, Problem, PromptTemplate, read_problems
from tandem_plugin.lab.data.problem import Message, prompt_ids

__all__ = [
    "Asking",
    "answer",
    "chat",
    "check_longer",
    "noted",
    "prompt",
    "read_prompts",
]


def read_prompts(
    source: str, golds: Literal["required", "optional"] = "optional"
) -> tuple[Problem, ...]:
    """The problems of a source, read as :func:`tandem_plugin.lab.data.read_problems` does.

    golds: whether each needs its right answer. Raises :class:`DataError` naming the source and the
    row for a row that is no problem: none is left out.
    """
    found = read_problems(source, bad_rows="skip", name=source, golds=golds)
    if found.bad_rows:
        bad, *more = found.bad_rows
        others = f" {len(more):,} more rows are invalid." if more else ""
        raise DataError("TP976", source=source, row=bad.row, reason=bad.reason, others=others)
    return found.problems


def prompt(problem: Problem) -> str | list[Message]:
    """What is asked, as its row has it: a text, white space included, or the turns of a chat."""
    return list(problem.messages) if problem.raw is None else problem.raw


def chat(problem: Problem) -> list[Message]:
    """What is asked, as a chat."""
    asked = prompt(problem)
    return [{"role": "user", "content": asked}] if isinstance(asked, str) else asked


@dataclass(frozen=True, slots=True)
class Asking:
    """How problems are asked."""

    instruction: str | None = None
    """What is asked beside each problem; None where problems are asked as they are."""
    raw: bool = False
    """Whether texts are sent as they are, without a chat template."""

    @classmethod
    def chosen(cls, grade: bool, instruction: str | None, raw: bool) -> Asking:
        """By the options; raises :class:`DataError` for those that do not go together."""
        if raw and instruction is not None:
            raise DataError("TP977")
        if grade and instruction is None and not raw:
            instruction = INSTRUCTION
        return cls(instruction, raw)

    def prompt(self, problem: Problem) -> str | list[Message]:
        """What is asked: as the row has it, or the turns of a chat with the instruction."""
        return prompt(problem) if self.instruction is None else self._turns(problem)

    def ids(self, problem: Problem, tokenizer: Any) -> list[int]:
        """The token ids that the model is given.

        Raises :class:`DataError` for a chat that is to be sent as it is.
        """
        if self.instruction is not None:
            return prompt_ids(self._turns(problem), tokenizer)
        if not self.raw and getattr(tokenizer, "chat_template", None):
            return prompt_ids(chat(problem), tokenizer)
        if problem.raw is None:
            raise DataError("TP978")
        return list(tokenizer.encode(problem.raw))

    def _turns(self, problem: Problem) -> list[Message]:
        return PromptTemplate(instruction=self.instruction or "").messages(problem)


def answer(problem: Problem) -> str | list[str] | None:
    """The right answer, a list where there are several, None where none is known."""
    if len(problem.golds) > 1:
        return list(problem.golds)
    return problem.golds[0] if problem.golds else None


def noted(problems: Sequence[Problem]) -> dict[str, Any]:
    """What a run notes of its problems: their number, and a hash of them and their answers.

    Both decide a row, and answers its reward.
    """
    asked = json.dumps([[prompt(problem), list(problem.golds)] for problem in problems])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    return {"count": len(problems), "sha256": digest}


def check_longer(before: object, problems: Sequence[Problem]) -> None:
    """Raise :class:`DataError` unless a run that noted ``before`` may use these problems.

    They may be more than they were: every response has its problem's place.
    """
    count = before.get("count") if isinstance(before, dict) else None
    if type(count) is not int or before != noted(problems[:count]):
        raise DataError("TP979")
