"""The problems of ``tandem rollout``, with or without their answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

from tandem_plugin.lab.data import DataError, Problem, PromptTemplate, load_named, read_problems
from tandem_plugin.lab.data.named import check_source, is_named
from tandem_plugin.lab.data.problem import Message, prompt_ids

__all__ = ["answer", "noted", "prompt", "read_prompts", "token_ids"]


def read_prompts(
    source: str, golds: Literal["required", "optional"] = "optional"
) -> tuple[Problem, ...]:
    """The problems of a source or of a named set.

    golds: whether each needs its answer. Raises :class:`DataError` naming the source and the row
    for an invalid row.
    """
    if is_named(source):
        return load_named(source).problems
    check_source(source)
    found = read_problems(source, bad_rows="skip", name=source, golds=golds)
    if found.bad_rows:
        bad, *more = found.bad_rows
        others = f" {len(more):,} more rows are invalid." if more else ""
        raise DataError("TP976", source=source, row=bad.row, reason=bad.reason, others=others)
    return found.problems


def prompt(problem: Problem, instruction: str | None = None) -> str | list[Message]:
    """The prompt as its row has it, white space included; with an instruction, as a chat."""
    if instruction is not None:
        return PromptTemplate(instruction=instruction).messages(problem)
    return list(problem.messages) if problem.raw is None else problem.raw


def token_ids(problem: Problem, instruction: str | None, tokenizer: Any) -> list[int]:
    """The token ids of the prompt, in the chat template if the tokenizer has one."""
    asked = prompt(problem, instruction)
    turns = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    return prompt_ids(turns, tokenizer)


def answer(problem: Problem) -> str | list[str] | None:
    """The answer, a list if there are several, None if none is known."""
    if len(problem.golds) > 1:
        return list(problem.golds)
    return problem.golds[0] if problem.golds else None


def noted(problems: Sequence[Problem]) -> dict[str, Any]:
    """What a run records of its problems: their number, and a hash of them and their answers."""
    asked = json.dumps([[prompt(problem), list(problem.golds)] for problem in problems])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    return {"count": len(problems), "sha256": digest}
