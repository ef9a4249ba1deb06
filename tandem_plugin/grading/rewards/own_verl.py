"""A reward of one's own for verl, named in its configuration by this file's path.

::

    reward.custom_reward_function.path=FILE
    +reward.custom_reward_function.reward_kwargs.reward=my_reward.py:score

Several are a JSON object with the weight of each. verl calls it once per response: a function that
takes lists gets lists of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.grading.rewards import prompt_of
from tandem_plugin.grading.rewards.own import OwnRewards, problem_of


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    reward: str = "",
    **_: Any,
) -> dict[str, float]:
    """The reward of one response; of several functions also what each gave it.

    reward: as :meth:`OwnRewards.of` takes it. Raises as :class:`OwnReward` does.
    """
    row = {"data_source": data_source, **(extra_info if isinstance(extra_info, Mapping) else {})}
    problem = problem_of(prompt_of(extra_info), ground_truth, row)
    (score,), parts = OwnRewards.of(reward).scores([solution_str], [problem])
    rewards = {f"reward_{name}": value for name, (value,) in parts.items()}
    return {"score": score, "acc": score, **(rewards if len(rewards) > 1 else {})}
