"""A reward of one's own for OpenRLHF, named on its command line by this file's path.

::

    TANDEM_REWARD=my.py:score ... --reward.remote_url FILE

OpenRLHF passes a prompt and its label alone: a problem has ``prompt`` and ``gold``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandem_plugin.errors import GradingError
from tandem_plugin.grading.rewards.openrlhf_response import response_of
from tandem_plugin.grading.rewards.own import own_rewards, problem_of


def reward_func(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
) -> dict[str, Any]:
    """The rewards of some queries, float tensors ``[queries]``.

    queries: prompt and response as one text. Raises :class:`GradingError` where a response is not
    found in its query, and as :class:`OwnReward` does.
    """
    import torch

    responses = [_response(*pair) for pair in zip(queries, prompts, strict=True)]
    problems = [problem_of(*pair, None) for pair in zip(prompts, labels, strict=True)]
    sums, parts = own_rewards().scores(responses, problems)
    rewards = torch.tensor(sums)
    logs = {name: torch.tensor(scores) for name, scores in parts.items()}
    return {"rewards": rewards, "scores": rewards, "extra_logs": logs}


def _response(query: str, prompt: str) -> str:
    response = response_of(query, prompt)
    if response is None:
        raise GradingError("openrlhf-response-not-found", prompt=prompt[-60:], query=query[:60])
    return response
