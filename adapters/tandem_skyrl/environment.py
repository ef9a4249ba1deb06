"""Tandem's verifiable reward as SkyRL-Gym's: ``environment.env_class=tandem_math``.

As a program it is SkyRL's own command with this environment, without tandem: the runs that one in
tandem is compared with.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from tandem_plugin.grading.rewards.skyrl_reward import reward_of


class MathEnv(BaseTextEnv):  # type: ignore[misc]
    """A problem with one answer: reward 1.0 if it is right, else 0.0, graded as by
    :func:`~tandem_plugin.grading.rewards.trl_reward.math_reward`.

    If ``TANDEM_REWARD`` names the user's own functions, theirs; each function's is a metric.

    As for other trainers' rewards, a response is text without special tokens. The text that SkyRL's
    client returns has them, such as the end of a turn, contrary to ``InferenceEngineOutput`` (SkyRL
    0.4).
    """

    def __init__(
        self,
        env_config: Any = None,
        extras: Mapping[str, Any] | None = None,
        special_tokens: Sequence[str] = (),
    ) -> None:
        """extras: the columns of the problem's row besides its prompt. special_tokens: the
        tokenizer's, as text: :func:`~tandem_skyrl.experiment.special_tokens_of`."""
        super().__init__()
        self._special_tokens = sorted(special_tokens, key=len, reverse=True)
        """The longest first: a token may be the beginning of a longer one."""
        self._prompt = (extras or {}).get("prompt")
        self._row = {name: value for name, value in (extras or {}).items() if name != "max_turns"}
        self._parts: dict[str, float] = {}

    def init(self, prompt: Any) -> Any:
        """As in SkyRL-Gym, which creates environments without their prompt."""
        self._prompt = prompt
        return super().init(prompt)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Raises like :func:`~tandem_plugin.grading.rewards.skyrl_reward.reward_of`."""
        response = action
        if self._special_tokens:
            response = re.sub("|".join(map(re.escape, self._special_tokens)), "", action)
        reward, self._parts = reward_of(response, self._prompt, self._row)
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata={})

    def get_metrics(self) -> dict[str, float]:
        """What each of the user's functions gave, by the function's name."""
        return self._parts


def main() -> None:
    """Run SkyRL with the settings of the command line."""
    from skyrl.train.config import SkyRLTrainConfig

    from tandem_skyrl.experiment import MathExp, run_experiment

    run_experiment(MathExp, SkyRLTrainConfig.from_cli_overrides(sys.argv[1:]))


if __name__ == "__main__":
    main()
