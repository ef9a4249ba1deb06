"""The reward for OpenRLHF, named on its command line by this file's path.

::

    --reward.remote_url $(tandem path reward-openrlhf)

OpenRLHF 0.11 calls it once per response, in threads, and logs the means of ``extra_logs``. It
ignores errors, so a row that cannot be graded raises none; without SymPy, loading this file raises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tandem_plugin.grading import Grade, default_grader
from tandem_plugin.grading.rewards import outcome_flags

_TAIL = 48

default_grader()  # raises at startup if SymPy is missing


def reward_func(
    queries: Sequence[str],
    prompts: Sequence[str],
    labels: Sequence[Any],
    **_: Any,
) -> dict[str, Any]:
    """Grade the responses of some queries.

    queries: prompt and response as one text. labels: a string, a number, a list of those, or such
    a list as JSON text. Returns ``rewards`` and ``scores``, float tensors ``[queries]``, and in
    ``extra_logs`` one tensor per outcome.
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
    response = _response(query, prompt)
    if response is None:
        return Grade("error", None, "prompt", 0.0, message="The query does not contain its prompt.")
    return default_grader().grade(response, _golds(label), prompt)


def _response(query: str, prompt: str) -> str | None:
    """What follows the prompt; by its end where its beginning was cut off or decodes otherwise."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    tail = prompt[-_TAIL:]
    _, found, response = query.partition(tail)
    return response if tail and found else None


def _golds(label: Any) -> Any:
    """A JSON list of answers in a text column means several acceptable answers."""
    if isinstance(label, str) and label.startswith("["):
        try:
            listed = json.loads(label)
        except ValueError:
            return label
        if isinstance(listed, list) and listed and all(isinstance(one, str) for one in listed):
            return listed
    return label
