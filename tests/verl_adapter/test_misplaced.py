"""Settings of tandem where nothing reads them stop a verl run, which would ignore them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from refused import refused

from tandem_verl.switch import FLAG, check_places

ROLLOUT = "actor_rollout_ref.rollout"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"

BASE = {
    "actor_rollout_ref": {
        "actor": {"strategy": "fsdp2"},
        "rollout": {"name": "vllm", "engine_kwargs": {"vllm": {}, "sglang": {}}},
    },
    "data": {"train_files": "tandem/train.parquet"},
    "reward": {"custom_reward_function": {"path": "tandem.py", "reward_kwargs": {}}},
    "trainer": {"experiment_name": "tandem", "logger": ["tandem"]},
}


def with_settings(**settings: Any) -> dict[str, Any]:
    """``BASE`` with values at dotted paths, which double underscores stand for."""
    config = copy.deepcopy(BASE)
    for path, value in settings.items():
        *parents, last = path.split(".")
        node: Any = config
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return config


MISPLACED = [
    ("tandem.schedule", "word"),
    ("tandem", "token"),
    (f"{ROLLOUT}.tandem.p", 0.3),
    (f"{ENGINE}.tandem.schedule", "word"),
    (f"{ENGINE}.additional_config.Tandem.schedule", "word"),
    (f"{ENGINE}.additional_config.tandm.schedule", "word"),
    (f"{ROLLOUT}.engine_kwargs.sglang.additional_config.tandem.cap", 4),
]


@pytest.mark.parametrize(("path", "value"), MISPLACED)
def test_misplaced_setting_stops_a_run(path: str, value: Any) -> None:
    """Alone, where it would be plain GRPO, and beside the right flag, which would not heed it."""
    node = path if path == "tandem" else path.rpartition(".")[0]
    with refused("TP509", places=node):
        check_places(with_settings(**{path: value}))
    with refused("TP509", places=node):
        check_places(with_settings(**{FLAG: {"schedule": "word"}, path: value}))


NOT_MISPLACED: list[dict[str, Any]] = [
    {},
    {FLAG: {"schedule": "word", "p": 0.3, "junior": "a"}},
    {FLAG: None},
    {"tandem": None, f"{ROLLOUT}.tandem": False},
    {"data.tandem": "a column", "data.custom.tandem.schedule": "word"},
    {"reward.custom_reward_function.reward_kwargs.tandem": True},
    {"ray_kwargs.ray_init.runtime_env.env_vars.TANDEM": "1"},
    {f"{ROLLOUT}.custom.tandem": {"schedule": "word"}},
    {"trainer.tandem_bonus": 0.5, "algorithm.schedule": "word", "trainer.random": {"seed": 1}},
]


@pytest.mark.parametrize("settings", NOT_MISPLACED)
def test_what_only_speaks_of_tandem_is_left_alone(settings: dict[str, Any]) -> None:
    check_places(with_settings(**settings))


def test_variable_of_openrlhfs_runs_does_not_start_a_verl_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TANDEM_CONFIG", '{"schedule": "word"}')
    with refused("TP509", places="the environment variable TANDEM_CONFIG"):
        check_places(BASE)
    check_places(with_settings(**{FLAG: {}}))
    monkeypatch.setenv("TANDEM_CONFIG", " ")
    check_places(BASE)


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer"])
def test_nothing_is_misplaced_in_verls_own_configurations(name: str) -> None:
    with initialize_config_module("verl.trainer.config", version_base=None):
        check_places(compose(name))
        check_places(compose(name, overrides=[f"+{FLAG}.schedule=word", f"+{FLAG}.seed=3"]))
        with refused("TP509", places=f"{ENGINE}.tandem"):
            check_places(compose(name, overrides=[f"+{ENGINE}.tandem.schedule=word"]))
