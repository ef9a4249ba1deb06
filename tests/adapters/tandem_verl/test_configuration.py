"""The one flag, from which the driver names our classes in verl's configuration."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from refused import refused
from verl.trainer import main_ppo, main_ppo_v0
from verl_stand_ins import IN_TANDEM, PLAIN, configuration

from tandem_verl import plugin
from tandem_verl.configuration import prepare
from tandem_verl.settings import FLAG, MANAGER, MODES
from tandem_verl.trainer import restore_mode


def copy(config: Any, **trainer: Any) -> Any:
    made = OmegaConf.create(OmegaConf.to_container(config))
    made.actor_rollout_ref.rollout.agent = {"num_workers": 2}
    made = OmegaConf.merge(made, {"trainer": trainer})
    OmegaConf.set_struct(made, True)
    return made


@pytest.mark.parametrize("mode", MODES)
def test_trainer_and_manager_of_ours_are_named(mode: str) -> None:
    config = copy(IN_TANDEM, v1={"trainer_mode": mode})
    prepare(config)
    assert config.trainer.v1.trainer_mode == f"tandem_{mode}"
    assert config.actor_rollout_ref.rollout.agent.agent_loop_manager_class == MANAGER
    assert config.actor_rollout_ref.rollout.agent.num_workers == 2
    restore_mode(config)
    assert config.trainer.v1.trainer_mode == mode


def test_driver_checks_runs_that_ask_before_verl_and_leaves_others_as_they_are() -> None:
    driver: Any = SimpleNamespace(validate_config=lambda config, **more: "validated")
    for _ in range(2):  # repeatable
        plugin.prepare_runs(driver)
    config = copy(PLAIN)
    assert driver.validate_config(config=config, use_critic=False) == "validated"
    assert config == copy(PLAIN)
    assert driver.validate_config(config=copy(IN_TANDEM), use_critic=False) == "validated"
    with refused("verl-settings-misplaced"):
        driver.validate_config(config={**OmegaConf.to_container(config), "tandem": {"p": 0.5}})
    with refused("plugin-name-unknown", kind="schedule", name="words"):
        driver.validate_config(config=copy(configuration({"schedule": "words"})))


MAINS = {
    "verl.experimental.fully_async_policy.fully_async_main": "fully_async_ppo_trainer",
    "verl.experimental.one_step_off_policy.main_ppo": "one_step_off_ppo_trainer",
}


@pytest.mark.parametrize("main", MAINS)
def test_other_mains_of_verls_stop_before_ray(main: str) -> None:
    plugin.check_runners(main_ppo)
    module = importlib.import_module(main)
    folder = str(Path(str(module.__file__)).parent / "config")
    for flag, code in (
        (f"+{FLAG}.schedule=word", "verl-runner-unsupported"),
        ("+tandem.p=0.5", "verl-settings-misplaced"),
    ):
        with initialize_config_dir(folder, version_base=None):
            searched = "hydra.searchpath=[pkg://verl.trainer.config]"
            config = compose(MAINS[main], overrides=[searched, flag])
        with refused(code):
            module.main.__wrapped__(config)
    assert not ray.is_initialized()


def test_runner_of_trainer_v1_starts_with_a_prepared_configuration() -> None:
    started: list[Any] = []
    module: Any = SimpleNamespace(
        run_ppo=lambda config, task_runner_class: started.append(
            (config.trainer.v1.trainer_mode, task_runner_class)
        ),
        TaskRunnerV1=main_ppo.TaskRunnerV1,
    )
    for _ in range(2):  # repeatable
        plugin.check_runners(module)
    runner, config = module.TaskRunnerV1, copy(IN_TANDEM)
    for _ in range(2):  # a main of verl's has validated it, or not
        module.run_ppo(config, task_runner_class=runner)
    module.run_ppo(copy(PLAIN), int)
    assert started == [("tandem_sync", runner), ("tandem_sync", runner), ("sync", int)]
    with refused("verl-runner-unsupported", runner="verl.trainer.main_ppo_v0.TaskRunner"):
        module.run_ppo(copy(IN_TANDEM), main_ppo_v0.TaskRunner)


def test_what_is_allowed_unproven_is_said_loudly(capsys: pytest.CaptureFixture[str]) -> None:
    config = copy(configuration({"unproven": ["automodel"]}))
    config.actor_rollout_ref.actor.strategy = "automodel"
    prepare(config)
    assert "WARNING: actor_rollout_ref.actor.strategy=automodel" in capsys.readouterr().err


def test_options_that_filter_sampled_tokens_are_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare(copy(IN_TANDEM))
    assert "importance" not in capsys.readouterr().err.lower()
    config = copy(IN_TANDEM)
    OmegaConf.set_struct(config, False)
    rollout = {"top_k": 3, "top_p": 1.0, "repetition_penalty": 1.2, "val_kwargs": {"top_p": 0.5}}
    config.actor_rollout_ref.rollout.update(rollout)
    prepare(config)
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "Importance" in one]
    assert line.startswith("WARNING: actor_rollout_ref.rollout.top_k=3: ")
