"""The reward for Hugging Face TRL. Without SymPy, importing this module raises.

::

    GRPOTrainer(..., reward_funcs=math_reward)
    trl grpo --reward_funcs tandem_plugin.grading.rewards.trl_reward.math_reward ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tandem_plugin.errors import DataError
from tandem_plugin.grading import OUTCOMES, default_grader
from tandem_plugin.grading.golds import ANSWER_FIELDS, answer_of
from tandem_plugin.grading.rewards import prompt_of, text_of

_COLUMNS = tuple(name.partition(".")[0] for name in ANSWER_FIELDS)
"""Where a data set may have the right answers: first as ``tandem data prepare`` writes them."""

default_grader()  # raises at startup if SymPy is missing


def math_reward(
    completions: Sequence[Any],
    extra_info: Sequence[Any] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    prompts: Sequence[Any] | None = None,
    **columns: Any,
) -> list[float | None]:
    """Grade a batch: 1.0 for each right answer, else 0.0; logs the share of each outcome.

    completions, prompts: texts, or conversations; the answer is the assistant's last turn. The
    right answer of a row is found as by ``tandem data prepare``, in the first of
    :data:`~tandem_plugin.grading.golds.ANSWER_FIELDS` that is not blank. A row without one gets
    None, which TRL leaves out. Raises :class:`DataError` for a data set without any of these
    columns.
    """
    names = [name for name in _COLUMNS if name in columns]
    if not names:
        raise DataError(
            "answers-column-missing", columns=", ".join(sorted(columns)), known=", ".join(_COLUMNS)
        )
    rows = range(len(completions))
    golds = [answer_of({name: columns[name][row] for name in names}) for row in rows]
    questions = [_prompt(prompts, extra_info, row) for row in rows]
    graded = [row for row in rows if golds[row] is not None]
    grades = default_grader().grade_batch(
        (said_in(completions[row]), golds[row], questions[row]) for row in graded
    )
    if log_metric is not None and grades:
        for outcome in OUTCOMES:
            share = sum(grade.outcome == outcome for grade in grades) / len(grades)
            log_metric(f"grading/{outcome}", share)
    rewards = {row: grade.reward for row, grade in zip(graded, grades, strict=True)}
    return [rewards.get(row) for row in rows]


def _prompt(
    prompts: Sequence[Any] | None, extra_info: Sequence[Any] | None, row: int
) -> str | None:
    if prompts is not None and (text := text_of(prompts[row])):
        return text
    return None if extra_info is None else prompt_of(extra_info[row])


def said_in(completion: Any) -> str:
    """The text of a completion, or of the assistant's last turn; empty where there is none."""
    if not isinstance(completion, list | tuple):
        return text_of(completion)
    turns = [turn for turn in completion if isinstance(turn, dict) and "role" in turn]
    replies = [turn for turn in turns if turn["role"] == "assistant"] if turns else [completion]
    return text_of(replies[-1]) if replies else ""
