"""An experiment as SkyRL's users write one, in tandem: an environment, and a log that tests read.

Imported in the task that trains, where the functions that break a run are looked up as well.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from tandem_skyrl.experiment import TandemExp


class Letters(BaseTextEnv):  # type: ignore[misc]
    """Rewards a letter, and asks again until the last turn."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.letter, self.max_turns = extras["letter"], extras["max_turns"]

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        done = self.turns >= self.max_turns
        more = [] if done else [{"role": "user", "content": "More about the work."}]
        reward = action.count(self.letter) / max(len(action), 1)
        return BaseTextEnvStepOutput(observations=more, reward=reward, done=done, metadata={})


class JsonLines:
    """In place of SkyRL's ``Tracking``: one line an entry."""

    def log(self, data: dict[str, Any], step: int, commit: bool = False) -> None:
        with Path(os.environ["TANDEM_TEST_RUN"], "metrics.jsonl").open("a") as file:
            file.write(json.dumps({**data, "step": step}, default=float) + "\n")

    def log_exception(self, error: Exception, step: int) -> None: ...

    def finish(self) -> None: ...


class LettersExp(TandemExp):
    """One of SkyRL's documented hooks more: the log."""

    def __init__(self, cfg: Any) -> None:
        skyrl_gym.register(id="letters", entry_point="support.skyrl_experiment:Letters")
        super().__init__(cfg)
        if sabotage := os.environ["TANDEM_TEST_SABOTAGE"]:
            globals()[sabotage](self)

    def get_tracker(self) -> Any:
        return JsonLines()


def without_narrowing(experiment: TandemExp) -> None:
    """Masks that are wider than what was admitted, at the update."""
    from skyrl.train.trainer import RayPPOTrainer

    convert = RayPPOTrainer.convert_to_training_input

    def wide(self: Any, output: Any, uids: Any) -> Any:
        batch = convert(self, output, uids)
        batch["loss_mask"] = batch["response_mask"].float()
        return batch

    RayPPOTrainer.convert_to_training_input = wide


def complemented(experiment: TandemExp) -> None:
    """The junior's tokens in the place of the senior's."""
    from skyrl.train.trainer import RayPPOTrainer

    convert = RayPPOTrainer.convert_to_training_input

    def other(self: Any, output: Any, uids: Any) -> Any:
        masks = [[1 - bit for bit in mask] for mask in output["loss_masks"]]
        return convert(self, {**output, "loss_masks": masks}, uids)

    RayPPOTrainer.convert_to_training_input = other


def responses_from_elsewhere(experiment: TandemExp) -> None:
    """A trainer that copies its responses, which then have no row."""
    from skyrl.train.trainer import RayPPOTrainer

    postprocess = RayPPOTrainer.postprocess_generator_output

    def copied(self: Any, output: Any, uids: Any, **options: Any) -> Any:
        output["response_ids"] = [list(ids) for ids in output["response_ids"]]
        return postprocess(self, output, uids, **options)

    RayPPOTrainer.postprocess_generator_output = copied


def generator_not_asked_for(experiment: TandemExp) -> None:
    """SkyRL creates its generator by itself."""
    from skyrl.train.entrypoints.main_base import BasePPOExp

    experiment.get_generator = lambda *given: BasePPOExp.get_generator(experiment, *given)


def plain_engines(experiment: TandemExp) -> None:
    """Engines that are not in tandem, which answer its requests all the same."""
    arguments = experiment.cfg.generator.inference_engine.engine_init_kwargs
    get_generator = experiment.get_generator
    tandem = arguments.pop("additional_config")

    def get(*given: Any) -> Any:
        arguments["additional_config"] = tandem
        return get_generator(*given)

    experiment.get_generator = get


def foreign_rules(experiment: TandemExp) -> None:
    """A trainer that reads other boundaries than its engines."""
    get_generator = experiment.get_generator

    def get(cfg: Any, *given: Any) -> Any:
        tandem = cfg.generator.inference_engine.engine_init_kwargs["additional_config"]["tandem"]
        tandem["boundaries"] = "newline"
        return get_generator(cfg, *given)

    experiment.get_generator = get


def loop_moved(experiment: TandemExp) -> None:
    """SkyRL's generator without the method that tandem's extends."""
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

    SkyRLGymGenerator.loop_of_agents = SkyRLGymGenerator.agent_loop
    del SkyRLGymGenerator.agent_loop


def update_moved(experiment: TandemExp) -> None:
    """SkyRL's trainer without the method that tandem's extends."""
    from skyrl.train.trainer import RayPPOTrainer

    del RayPPOTrainer.train_critic_and_policy


def trainer_not_asked_for(experiment: TandemExp) -> None:
    """SkyRL creates its trainer by itself."""
    from skyrl.train.entrypoints.main_base import BasePPOExp

    experiment.get_trainer = lambda **given: BasePPOExp.get_trainer(experiment, **given)
