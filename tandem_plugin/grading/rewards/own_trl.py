"""Rewards of one's own for TRL: ``reward_0``, ``reward_1`` and so on are those of TANDEM_REWARD.

Their weights are TRL's, ``--reward_weights``::

    TANDEM_REWARD=my.py:score ... \\
        --reward_funcs tandem_plugin.grading.rewards.own_trl.reward_0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem_plugin.errors import GradingError
from tandem_plugin.grading.golds import answer_of
from tandem_plugin.grading.rewards import text_of
from tandem_plugin.grading.rewards.own import OwnReward, own_rewards, problem_of
from tandem_plugin.grading.rewards.trl_reward import said_in


def __getattr__(name: str) -> Callable[..., list[float]]:
    number = name.removeprefix("reward_")
    if number == name or not number.isdecimal():
        raise AttributeError(name)
    rewards = own_rewards().rewards
    if int(number) >= len(rewards):
        raise GradingError("reward-number-missing", number=int(number), count=len(rewards))
    return reward_function(rewards[int(number)])


def reward_function(reward: OwnReward) -> Callable[..., list[float]]:
    """TRL's reward function of a user's: TRL logs it under the user's name."""

    def scores(completions: Sequence[Any], prompts: Sequence[Any], **columns: Any) -> list[float]:
        return reward.scores(*responses_and_problems(completions, prompts, columns))

    scores.__name__ = reward.function
    return scores


def responses_and_problems(
    completions: Sequence[Any], prompts: Sequence[Any], columns: Mapping[str, Any]
) -> tuple[list[str], list[dict[str, Any]]]:
    """What the user's functions get; columns: of the batch, those that are no lists aside."""
    rows = [
        {name: values[row] for name, values in columns.items() if _is_column(values, prompts)}
        for row in range(len(completions))
    ]
    pairs = zip(prompts, rows, strict=True)
    problems = [problem_of(text_of(prompt), answer_of(row), _flat(row)) for prompt, row in pairs]
    return [said_in(completion) for completion in completions], problems


def _is_column(values: Any, prompts: Sequence[Any]) -> bool:
    return isinstance(values, list) and len(values) == len(prompts)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what verl's format has in ``extra_info`` with its other columns."""
    extra = row.get("extra_info")
    return {**row, **(extra if isinstance(extra, dict) else {})}
