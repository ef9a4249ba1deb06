"""Settings of tandem where nothing reads them stop a verl run, which would ignore them."""

from __future__ import annotations

import copy
import functools
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from refused import refused

from tandem_verl import plugin
from tandem_verl.misplaced import check_places
from tandem_verl.settings import FLAG, MANAGER, MANAGER_KEY, OUR_MODE

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
    ("tandem_schedule", "word"),
    ("data.tandem", "a column"),
    ("trainer.tandem_bonus", 0.5),
    ("trainer.my_tandem", False),
    (f"{ROLLOUT}.tandem.p", 0.3),
    (f"{ENGINE}.tandem.schedule", "word"),
    (f"{ENGINE}.additional_config.Tandem.schedule", "word"),
    (f"{ENGINE}.additional_config.tandm.schedule", "word"),
    (f"{ENGINE}.additional_config.t\u0430ndem_settings.schedule", "word"),
    (f"{ROLLOUT}.engine_kwargs.sglang.additional_config.tandem.cap", 4),
]


@pytest.mark.parametrize(("path", "value"), MISPLACED)
def test_misplaced_setting_stops_a_run(path: str, value: Any) -> None:
    """Alone, where it would be plain GRPO, and beside the right flag, which would not heed it."""
    parent, _, key = path.rpartition(".")
    node = path if "tandem" in key else parent
    with refused("verl-settings-misplaced", places=node):
        check_places(with_settings(**{path: value}))
    with refused("verl-settings-misplaced", places=node):
        check_places(with_settings(**{FLAG: {"schedule": "word"}, path: value}))


def test_setting_of_a_plugins_schedule_beside_the_flag_stops_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tandem_plugin.config.parameter_names", lambda name: [f"{name}_rate"])
    beside = {f"{ENGINE}.additional_config": {"tandem": {"schedule": "mine"}, "mine_rate": 0.5}}
    with refused("verl-settings-misplaced", places=f"{ENGINE}.additional_config.mine_rate"):
        check_places(with_settings(**beside))


NOT_MISPLACED: list[dict[str, Any]] = [
    {},
    {FLAG: {"schedule": "word", "p": 0.3, "junior": "a"}},
    {FLAG: None},
    {f"{ENGINE}.additional_config": {"ascend_scheduler_config": {"mode": "a", "seed": 1}}},
    {f"{ENGINE}.seed": 3, f"{ENGINE}.mode": "a"},
    {"algorithm.schedule": "word", "trainer.random": {"seed": 1}, "trainer.standard": 1},
    {"data.path": "runs/tandem", "trainer.notes": ["tandem", {"text": "tandem=word"}]},
]

OF_THE_USER: list[dict[str, Any]] = [
    {"data.custom.tandem.schedule": "word"},
    {"reward.custom_reward_function.reward_kwargs.tandem": True},
    {"ray_kwargs.ray_init.runtime_env.env_vars.TANDEM_CONFIG": "{}"},
    {f"{ROLLOUT}.custom.tandem": {"schedule": "word"}},
]
"""Names that the user's own code may read: only the flag itself shows that it is not forgotten."""


@pytest.mark.parametrize("settings", NOT_MISPLACED)
def test_what_only_speaks_of_tandem_is_left_alone(settings: dict[str, Any]) -> None:
    check_places(with_settings(**settings))


@pytest.mark.parametrize("settings", OF_THE_USER)
def test_names_of_the_users_own_need_the_flag_beside_them(settings: dict[str, Any]) -> None:
    with refused("verl-settings-misplaced"):
        check_places(with_settings(**settings))
    check_places(with_settings(**{FLAG: {"schedule": "word"}, **settings}))
    check_places(with_settings(**{FLAG: None, **settings}))


def test_our_manager_without_the_flag_stops_a_run() -> None:
    with refused("verl-manager-without-tandem", manager=MANAGER):
        check_places(with_settings(**{MANAGER_KEY: MANAGER}))
    check_places(with_settings(**{MANAGER_KEY: MANAGER, FLAG: {}}))
    check_places(with_settings(**{MANAGER_KEY: "my.Manager"}))


def test_variable_of_openrlhfs_runs_does_not_start_a_verl_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TANDEM_CONFIG", '{"schedule": "word"}')
    with refused("verl-settings-misplaced", places="the environment variable TANDEM_CONFIG"):
        check_places(BASE)
    check_places(with_settings(**{FLAG: {}}))
    monkeypatch.setenv("TANDEM_CONFIG", " ")
    check_places(BASE)


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer"])
def test_nothing_is_misplaced_in_verls_own_configurations(name: str) -> None:
    check_places(composed(name))
    check_places(composed(name, f"+{FLAG}.schedule=word", f"+{FLAG}.seed=3"))


A = f"{ENGINE}.additional_config"
REWARD = "reward.custom_reward_function"
ENVIRONMENT = "ray_kwargs.ray_init.runtime_env.env_vars"
WORD = "tandem.schedule=word"

IN_TANDEM = [
    [f"+{A}.{WORD}"],
    [f"++{A}.{WORD}"],
    [f"+{A}.tandem.p=0.3"],
    [f"+{A}.tandem={{}}"],
    [f"+{A}.tandem={{schedule: word}}"],
    [f"+{A}={{tandem: {{schedule: word}}}}"],
    [f"++{ENGINE}={{additional_config: {{{WORD.replace('.', ': {').replace('=', ': ')}}}}}}}"],
    [f'+{A}=\'{{"tandem": {{"schedule": "word"}}}}\''],
    [f"+{A}.{WORD}", f"+{A}.tandem.junior=models/tandem"],
    [f"+{A}.{WORD}", f"+{MANAGER_KEY}={MANAGER}"],
    [f"++{A}.{WORD}", f"++{MANAGER_KEY}={MANAGER}"],
    [f"+{A}.{WORD}", "trainer.experiment_name=tandem", "trainer.project_name=tandem_word"],
    [f"+{A}.{WORD}", "actor_rollout_ref.model.path=models/tandem", "data.train_files=tandem"],
    [f"+{A}.{WORD}", f"+{A}.ascend_scheduler_config.enabled=True"],
    [f"+{A}.{WORD}", f"+{REWARD}.reward_kwargs.tandem_bonus=0.1"],
]

PLAIN = [
    [],
    [f"+{A}.tandem=null"],
    [f"+{A}={{tandem: null}}"],
    ["trainer.experiment_name=tandem", "trainer.project_name=tandem"],
    ["actor_rollout_ref.model.path=models/tandem", "trainer.default_local_dir=runs/tandem"],
    [f"+{A}.tandem=null", f"+{REWARD}.reward_kwargs.tandem_bonus=0.1"],
]
"""Without the flag, or with the flag turned off."""

REFUSED = [
    *([f"+{one}"] for one in (
        f"{A}.schedule=word", f"{A}.tandem_config.schedule=word",
        f"{A}.tandem_plugin.schedule=word", "tandem_schedule=word",
        f"{ROLLOUT}.tandem_schedule=word", f"data.{WORD}",
        # The right node, and a value that is no mapping.
        f"{A}.tandem=word", f"{A}.tandem=True", f"{A}.tandem=False", f"{A}.tandem=0",
        f"{A}.tandem=[word]", f"{A}.tandem=''",
        # Misspelt there, or a level too many or too few.
        f"{A}.Tandem.schedule=word", f"{A}.TANDEM.schedule=word", f"{A}.tandm.schedule=word",
        f"{A}.tandem-plugin.schedule=word", f"{A}.tanden=word",
        f"{A}.tandem_schedule=word", f"{A}.tandem_p=0.3", f"{A}.{A}.{WORD}",
        f"{A}.config.schedule=word", f"{A}.plugins.{WORD}", f"{A}.vllm.{WORD}",
        f"{A}={{tandem.schedule: word}}", f"{A}=[{{tandem: {{schedule: word}}}}]",
        f"{A}.p=0.3", f"{A}.cap=16", f"{A}.junior=small", f"{A}.mode=speculative",
        f"{A}='{{\"schedule\": \"word\"}}'", f"{A}='{{\"tandem_plugin\": {{}}}}'",
        f"{ENGINE}.{WORD}", f"{ENGINE}.tandem=word", f"{ENGINE}.tandem_schedule=word",
        f"{ENGINE}.schedule=word", f"{ENGINE}.additional-config.{WORD}",
        f"{ENGINE}.aditional_config.{WORD}", f"{ENGINE}.hf_overrides.{WORD}",
        f"{ROLLOUT}.engine_kwargs.{WORD}", f"{ROLLOUT}.engine_kwargs.schedule=word",
        f"{ROLLOUT}.engine_kwargs.additional_config.{WORD}",
        f"{ROLLOUT}.engine_kwargs.sglang.additional_config.{WORD}",
        f"{ROLLOUT}.additional_config.{WORD}", f"{ROLLOUT}.additional_config.schedule=word",
        # Anywhere else.
        WORD, "tandem=word", "tandem=true", "tandem=null", "tandem=false",
        "tandem_plugin.schedule=word", f"{ROLLOUT}.{WORD}", f"{ROLLOUT}.agent.{WORD}",
        f"{ROLLOUT}.custom.{WORD}", f"actor_rollout_ref.{WORD}", "actor_rollout_ref.tandem=word",
        f"actor_rollout_ref.actor.{WORD}", f"actor_rollout_ref.model.{WORD}",
        f"actor_rollout_ref.model.override_config.{WORD}", f"algorithm.{WORD}",
        "algorithm.tandem_p=0.5", f"trainer.{WORD}", f"trainer.v1.{WORD}", "trainer.tandem=True",
        f"data.custom.{WORD}", "data.tandem_schedule=word", f"{REWARD}.reward_kwargs.{WORD}",
        f"reward.reward_model.rollout.engine_kwargs.vllm.additional_config.{WORD}",
        f"{ENVIRONMENT}.TANDEM_CONFIG='{{}}'", f"{ENVIRONMENT}.TANDEM_SCHEDULE=word",
    )),
    # The manager of a tandem run without the flag, or with the flag turned off.
    [f"+{MANAGER_KEY}={MANAGER}"],
    [f"+{MANAGER_KEY}={MANAGER}", f"+{A}.tandem=null"],
    # Beside the right flag, which does not heed them.
    [f"+{A}.{WORD}", "+tandem.p=0.3"],
    [f"+{A}.{WORD}", f"+{A}.p=0.3"],
    [f"+{A}.{WORD}", f"+{A}.tandem_plugin.p=0.3"],
    [f"+{A}.tandem=null", f"+{A}.schedule=word"],
]  # fmt: skip


GRPO = [f"{ROLLOUT}.name=vllm", "algorithm.adv_estimator=grpo"]


def composed(name: str, *overrides: str) -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(name, overrides=list(overrides))


@functools.cache
def grpo() -> Any:
    """verl's configuration for GRPO: reading its thirty files takes most of a composition."""
    return composed("ppo_trainer", *GRPO)


def overridden(overrides: list[str]) -> Any:
    """What Hydra composes of a command line, applied to the configuration that was read once."""
    config = copy.deepcopy(grpo())
    parsed = OverridesParser.create().parse_overrides(overrides)
    ConfigLoaderImpl._apply_overrides_to_config(parsed, config)
    return config


def checked(overrides: list[str]) -> bool:
    """Whether a command line starts a run in tandem, by what verl's driver does first."""
    seen = []
    driver: Any = SimpleNamespace(validate_config=seen.append)
    plugin.prepare_runs(driver)
    driver.validate_config(overridden(overrides))
    (config,) = seen
    return str(config.trainer.v1.trainer_mode).startswith(OUR_MODE)


def test_a_command_line_gives_what_hydra_composes_of_it() -> None:
    overrides = [*IN_TANDEM[5], *IN_TANDEM[9][1:], "trainer.nnodes=2", f"~{ROLLOUT}.n"]
    config = composed("ppo_trainer", *GRPO, *overrides)
    assert config == overridden(overrides) != grpo()
    assert config._get_flag("struct") == overridden(overrides)._get_flag("struct")


def test_command_lines_are_as_many_as_are_promised() -> None:
    assert len(IN_TANDEM) + len(PLAIN) + len(REFUSED) >= 75


@pytest.mark.parametrize("overrides", IN_TANDEM, ids=" ".join)
def test_right_command_lines_start_a_run_in_tandem(overrides: list[str]) -> None:
    assert checked(overrides)


@pytest.mark.parametrize("overrides", PLAIN, ids=" ".join)
def test_command_lines_without_the_flag_or_with_null_are_plain(overrides: list[str]) -> None:
    assert not checked(overrides)


@pytest.mark.parametrize("overrides", REFUSED, ids=" ".join)
def test_every_other_command_line_is_refused_and_none_is_plain(overrides: list[str]) -> None:
    with refused("settings-not-mapping", "verl-manager-without-tandem", "verl-settings-misplaced"):
        checked(overrides)
