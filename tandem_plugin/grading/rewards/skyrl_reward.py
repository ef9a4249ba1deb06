"""The reward for SkyRL-Gym, of one response at a time. Without SymPy, importing raises."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tandem_plugin.errors import DataError
from tandem_plugin.grading.rewards.own import VARIABLE, own_rewards
from tandem_plugin.grading.rewards.own_trl import responses_and_problems
from tandem_plugin.grading.rewards.trl_reward import math_reward


def reward_of(response: str, prompt: Any, row: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """1.0 for a right answer, else 0.0, and no parts; row: the columns besides the prompt.

    Where ``TANDEM_REWARD`` names functions of the user's: their reward, and what each gave by its
    name. Raises :class:`DataError` for a row without a right answer.
    """
    columns: dict[str, Any] = {name: [value] for name, value in row.items()}
    if os.environ.get(VARIABLE):
        batch = responses_and_problems([response], [prompt], columns)
        (reward,), parts = own_rewards().scores(*batch)
        return reward, {name: score for name, (score,) in parts.items()}
    (graded,) = math_reward([response], **columns)
    if graded is None:
        raise DataError("skyrl-row-without-answer", columns=", ".join(sorted(row)))
    return graded, {}
