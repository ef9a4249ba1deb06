"""A reward of one's own for verl, named in its configuration by this file's path.

::

    reward.custom_reward_function.path=FILE
    +reward.custom_reward_function.reward_kwargs.reward=my_reward.py:score

verl calls it once per response: a function that takes lists gets lists of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.grading.rewards import prompt_of
from tandem_plugin.grading.rewards.own import OwnReward, problem_of


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    reward: str = "",
    **_: Any,
) -> dict[str, float]:
    """The reward of one response; reward: ``FILE:FUNCTION``. Raises as :class:`OwnReward` does."""
    row = {"data_source": data_source, **(extra_info if isinstance(extra_info, Mapping) else {})}
    problem = problem_of(prompt_of(extra_info), ground_truth, row)
    (score,) = OwnReward.of(reward).scores([solution_str], [problem])
    return {"score": score, "acc": score}
