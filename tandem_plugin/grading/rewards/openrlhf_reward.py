"""The reward for OpenRLHF, named on its command line by this file's path.

::

    --reward.remote_url $(tandem path reward-openrlhf)

OpenRLHF 0.11 calls it once per response, in threads, and logs the means of ``extra_logs``. It logs
what is raised here and goes on without a reward, which ends the batch with an error. Without SymPy,
loading this file raises.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tandem_plugin.errors import GradingError
from tandem_plugin.grading import Grade, default_grader
from tandem_plugin.grading.rewards import outcome_flags
from tandem_plugin.grading.rewards.openrlhf_response import response_of

logger = logging.getLogger(__name__)

_queries: Counter[bool] = Counter()
"""How many of this process's queries had a response that was found, and how many had not."""

default_grader()  # raises at startup if SymPy is missing


def reward_func(
    queries: Sequence[str],
    prompts: Sequence[str],
    labels: Sequence[Any],
    **_: Any,
) -> dict[str, Any]:
    """Grade the responses of some queries.

    queries: prompt and response as one text. labels: a string, a number, or a list of those.
    Returns ``rewards`` and ``scores``, float tensors ``[queries]``, and in ``extra_logs`` one
    tensor per outcome. Raises :class:`GradingError` while the response is not found in most
    queries; a rare one has the outcome ``error``.
    """
    import torch

    grades = [_grade(*row) for row in zip(queries, prompts, labels, strict=True)]
    rewards = torch.tensor([grade.reward for grade in grades])
    flags = [outcome_flags(grade) for grade in grades]
    names = flags[0] if flags else ()
    logs = {name: torch.tensor([row[name] for row in flags]) for name in names}
    logs["grading_ms"] = torch.tensor([grade.milliseconds for grade in grades])
    return {"rewards": rewards, "scores": rewards, "extra_logs": logs}


def _grade(query: str, prompt: str, label: Any) -> Grade:
    response = response_of(query, prompt)
    _queries[response is not None] += 1
    if response is not None:
        return default_grader().grade(response, label, prompt)
    failed = GradingError("openrlhf-response-not-found", prompt=prompt[-60:], query=query[:60])
    if _queries[False] > _queries[True]:
        raise failed
    if _queries[False] == 1:
        logger.warning("A response is not graded. %s", failed)
    return Grade("error", None, "prompt", 0.0, message=failed.message)
