"""The reward for verl, named in its configuration by this file's path.

::

    reward.custom_reward_function.path=$(tandem path reward-verl)

verl 0.9 calls it once per response, in threads of its reward workers, and averages every number
in the result over validation problems. Without SymPy, loading this file raises.
"""

from __future__ import annotations

from typing import Any

from tandem_plugin.grading import default_grader
from tandem_plugin.grading.rewards import outcome_flags, prompt_of

default_grader()  # raises at startup if SymPy is missing


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    **_: Any,
) -> dict[str, Any]:
    """Grade one response.

    ground_truth: a string, a number, or a list or array of those. extra_info: may have the problem
    as ``question``, ``problem`` or ``prompt``. Returns ``score`` (the reward, 0.0 or 1.0), ``acc``
    (verl's name for it), one ``outcome_...`` per outcome, ``grading_ms``, and, for the rollout
    dump, ``pred`` (the answer) and ``grading_rule``.
    """
    grade = default_grader().grade(solution_str, ground_truth, prompt_of(extra_info))
    return {
        "score": grade.reward,
        "acc": grade.reward,
        **outcome_flags(grade),
        "grading_ms": grade.milliseconds,
        "pred": grade.answer if grade.answer is not None else "",
        "grading_rule": grade.rule,
    }
