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
from tandem_plugin.grading.rewards import prompt_of

_COLUMNS = ("reward_model", "answer", "solution", "ground_truth")
"""Where a data set may have the right answers: first as ``tandem data prepare`` writes them."""

default_grader()  # raises at startup if SymPy is missing


def math_reward(
    completions: Sequence[Any],
    extra_info: Sequence[Any] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float]:
    """Grade a batch: 1.0 for each right answer, else 0.0; logs the share of each outcome.

    completions: texts, or conversations of one message. The right answers are in the column
    ``reward_model`` (a mapping with ``ground_truth``), ``answer``, ``solution`` or ``ground_truth``
    of the data set. Raises :class:`DataError` where there is none.
    """
    name = next((one for one in _COLUMNS if one in columns), None)
    if name is None:
        raise DataError("TP727", columns=", ".join(sorted(columns)), known=", ".join(_COLUMNS))
    golds = [one["ground_truth"] if isinstance(one, dict) else one for one in columns[name]]
    texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
    prompts = [prompt_of(one) for one in extra_info or [None] * len(texts)]
    grades = default_grader().grade_batch(zip(texts, golds, prompts, strict=True))
    if log_metric is not None:
        for outcome in OUTCOMES:
            share = sum(grade.outcome == outcome for grade in grades) / len(grades)
            log_metric(f"grading/{outcome}", share)
    return [grade.reward for grade in grades]
