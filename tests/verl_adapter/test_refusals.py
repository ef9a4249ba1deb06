"""Settings of a run that do not go with tandem, refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from refused import refused

from tandem_plugin import TandemConfig
from tandem_verl.configuration import check_models, check_versions, read_the_base
from tandem_verl.refusals import (
    BROKEN_ESTIMATORS,
    MISSING_ESTIMATORS,
    SOUND_ESTIMATORS,
    SOUND_LOSSES,
    UNPROVEN,
    allowed_unproven,
    check_run,
)
from tandem_verl.server import ROUTER
from tandem_verl.switch import BYPASS_LOSS, MODES


def run(**overrides: Any) -> Any:
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": "senior", "mtp": {"enable": False, "enable_rollout": False}},
                "actor": {"strategy": "fsdp2", "policy_loss": {"loss_mode": "vanilla"}},
                "rollout": {
                    "name": "vllm",
                    "pipeline_model_parallel_size": 1,
                    "mtp": {"enable": False},
                    "engine_kwargs": {"vllm": {"additional_config": {"tandem": {}}}},
                },
            },
            "algorithm": {"adv_estimator": "grpo", "rollout_correction": None},
            "trainer": {"use_v1": True, "v1": {"trainer_mode": "sync"}},
            "distillation": {"enabled": False},
        }
    )
    for path, value in overrides.items():
        OmegaConf.update(config, path, value)
    OmegaConf.set_struct(config, True)
    return config


TANDEM = TandemConfig.from_mapping({})
ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"
GPUS = ("nnodes", "n_gpus_per_node")


LOSS, MODE = f"{ACTOR}.policy_loss.loss_mode", "trainer.v1.trainer_mode"
MODEL, ESTIMATOR = "actor_rollout_ref.model", "algorithm.adv_estimator"
BACKEND = f"{ROLLOUT}.checkpoint_engine"
LORA = {"lora_rank": 8}
MERGED = {"lora_rank": 8, "lora": {"rank": 8, "merge": True}}
SPECULATIVE = {"mode": "speculative"}

PASSING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({ESTIMATOR: one}, {}) for one in SOUND_ESTIMATORS),
    *(({LOSS: one}, {}) for one in (*SOUND_LOSSES, BYPASS_LOSS)),
    *(({MODE: one}, {}) for one in MODES),
    ({"algorithm.rollout_correction": {"bypass_mode": True}}, {}),
    # What only resembles a refused setting.
    ({"algorithm": {"use_kl_in_reward": True, "kl_ctrl": {"type": "fixed"}}}, {}),
    ({"algorithm": {"use_kl_in_reward": False, "kl_ctrl": {"type": "adaptive"}}}, {}),
    ({f"{ROLLOUT}.disaggregation": {"enabled": False}}, {}),
    ({BACKEND: {"backend": "delta_sharded"}}, {}),  # a synchronous trainer does not use it
    # What a run allows by name.
    (
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.router_replay": {"mode": "R3"}},
        {"unproven": ["megatron", "router_replay"]},
    ),
    # Adapters, which are sent alone or merged.
    ({MODEL: LORA}, {}),
    ({MODEL: MERGED}, SPECULATIVE),
    ({MODEL: MERGED, BACKEND: {"backend": "nccl"}}, {}),
    ({MODEL: {"lora_rank": 8, "lora": {"rank": 0, "merge": True}}}, {}),
    # Juniors by a name on the Hub, or by a folder that is there.
    ({}, {"junior": "Qwen/Qwen3-0.6B"}),
    ({}, {"junior": str(Path(__file__).parent)}),
]


@pytest.mark.parametrize(("settings", "tandem"), PASSING)
def test_sound_settings_pass(settings: dict[str, Any], tandem: dict[str, Any]) -> None:
    check_run(run(**settings), TandemConfig.from_mapping(tandem))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *(({ESTIMATOR: one}, {}, "TP442") for one in (*BROKEN_ESTIMATORS, *MISSING_ESTIMATORS)),
    ({ESTIMATOR: "my_estimator"}, {}, "TP443"),
    ({LOSS: "my_loss"}, {}, "TP443"),
    ({f"{ACTOR}.strategy": "megatron"}, {}, "TP443"),
    ({f"{MODEL}.lora": {"rank": 8}}, {}, "TP503"),
    ({MODEL: LORA}, SPECULATIVE, "TP504"),
    ({MODEL: LORA, BACKEND: {"backend": "nccl"}}, {}, "TP505"),
    ({f"{MODEL}.lora_adapter_path": "/a"}, {}, "TP506"),
    ({"async_training": {"partial_rollout": True}}, {}, "TP510"),
    ({"rollout": {"nnodes": 1, "n_gpus_per_node": 1}}, {}, "TP511"),
    ({"trainer.use_v1": False}, {}, "TP512"),
    ({f"{ROLLOUT}.name": "sglang"}, {}, "TP513"),
    ({f"{ROLLOUT}.disaggregation": {"enabled": True}}, {}, "TP514"),
    ({f"{ENGINE}.kv_transfer_config": {"kv_connector": "NixlConnector"}}, {}, "TP515"),
    ({"algorithm": {"use_kl_in_reward": True, "kl_ctrl": {"type": "adaptive"}}}, {}, "TP516"),
    ({"algorithm": {"adv_estimator": "gae", "use_pf_ppo": True}}, {}, "TP517"),
    (
        {f"{ACTOR}.strategy": "megatron"},
        {"unproven": ["megatron"], "lambda_jun": 0.1},
        "TP518",
    ),
    (
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.router_replay": {"mode": "R3"}},
        {"unproven": ["megatron"]},
        "TP519",
    ),
    ({f"{ACTOR}.use_prefix_grouper": True}, {}, "TP520"),
    (
        {
            LOSS: "bypass_mode",
            f"{ACTOR}.policy_loss.rollout_correction": {"rollout_is_batch_normalize": True},
        },
        {},
        "TP521",
    ),
    ({"distillation.enabled": True}, {}, "TP522"),
    ({MODE: "my_mode"}, {}, "TP523"),
    ({}, {"rollouts": "runs/rollouts"}, "TP524"),
    ({BACKEND: {"backend": "delta_sharded"}, MODE: "separate_async"}, {}, "TP525"),
    ({f"{ROLLOUT}.pipeline_model_parallel_size": 2}, {}, "TP526"),
    ({f"{ENGINE}.pipeline_parallel_size": 2}, {}, "TP526"),
    ({f"{ENGINE}.speculative_config": {"method": "ngram"}}, {}, "TP527"),
    ({f"{ENGINE}.num_speculative_tokens": 3}, {}, "TP527"),
    ({f"{MODEL}.mtp": {"enable": True, "enable_rollout": True}}, {}, "TP528"),
    ({f"{ROLLOUT}.mtp": {"enable": True, "enable_rollout": True}}, {}, "TP528"),
    *(({}, {"junior": one}, "TP453") for one in ("/nowhere", "./no", "~/no", ["a", "./no"])),
    ({}, {"unproven": ["gae"]}, "TP440"),
]


@pytest.mark.parametrize(("settings", "tandem", "code"), REFUSED)
def test_settings_are_refused_by_name(
    settings: dict[str, Any], tandem: dict[str, Any], code: str
) -> None:
    sizes = {"trainer.nnodes": 2, "trainer.n_gpus_per_node": 2}
    with refused(code):
        check_run(run(**sizes, **settings), TandemConfig.from_mapping(tandem))


POOL = TandemConfig.from_mapping({"junior": ["a", "b"]})


@pytest.mark.parametrize(
    ("changes", "engines"),
    [
        ({}, 1),
        ({"trainer.n_gpus_per_node": 2}, 2),
        ({"trainer.nnodes": 2, "trainer.n_gpus_per_node": 4}, 8),
        ({"trainer.n_gpus_per_node": 2, f"{ROLLOUT}.tensor_model_parallel_size": 2}, 1),
        ({"trainer.n_gpus_per_node": 8, f"{ROLLOUT}.data_parallel_size": 4}, 2),
        ({"trainer.n_gpus_per_node": 8, "trainer.v1.trainer_mode": "separate_async"}, 1),
        ({"trainer.v1.trainer_mode": "separate_async", f"{ROLLOUT}.n_gpus_per_node": 2}, 2),
    ],
)
def test_run_with_fewer_engines_that_stay_than_juniors_is_refused(
    changes: dict[str, Any], engines: int
) -> None:
    sizes = {f"{where}.{name}": 1 for where in ("trainer", ROLLOUT) for name in GPUS}
    config = run(**{**sizes, **changes})
    for count in range(1, 4):
        pool = TandemConfig.from_mapping({"junior": [str(i) for i in range(count)]})
        if count <= engines:
            check_run(config, pool)
        else:
            with refused("TP441"):
                check_run(config, pool)


@pytest.mark.parametrize(
    ("key", "value"), [("router_config_path", "my.yaml"), ("full_determinism", True)]
)
def test_other_ways_of_routing_do_not_go_with_a_pool(key: str, value: object) -> None:
    sizes = {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 2}
    config = run(**sizes, **{f"{ROLLOUT}.{key}": value})
    check_run(config, TandemConfig.from_mapping({"junior": "a"}))
    with refused("TP529"):
        check_run(config, POOL)
    # A trainer names our own for a pool.
    check_run(run(**sizes, **{f"{ROLLOUT}.router_config_path": ROUTER}), POOL)


@pytest.mark.parametrize(
    ("junior", "lora", "given", "load_format"),
    [
        (None, {}, "dummy", "auto"),
        ("/model", {}, "dummy", "auto"),
        (["/other", "/model"], {}, "dummy", "auto"),
        ("/other", {}, "dummy", "dummy"),
        (None, {"merge": True}, "dummy", "dummy"),
        (None, {}, "safetensors", "safetensors"),
    ],
)
def test_a_base_that_is_the_junior_is_read_from_the_checkpoint(
    junior: Any, lora: dict[str, Any], given: str, load_format: str
) -> None:
    """verl would send it once, as whole weights, which the engine refuses."""
    model = {"path": "/model", "lora_rank": 8, "lora": lora}
    config = run(**{"actor_rollout_ref.model": model, f"{ROLLOUT}.load_format": given})
    tandem = TandemConfig.from_mapping({} if junior is None else {"junior": junior})
    read_the_base(config, tandem)
    assert config.actor_rollout_ref.rollout.load_format == load_format
    model["lora_rank"] = 0  # nothing is sent alone
    config = run(**{"actor_rollout_ref.model": model, f"{ROLLOUT}.load_format": given})
    read_the_base(config, tandem)
    assert config.actor_rollout_ref.rollout.load_format == given


def test_multimodal_models_are_refused(tmp_path: Path) -> None:
    for name, config in (("text", "{}"), ("image", '{"vision_config": {"depth": 2}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    text, image = str(tmp_path / "text"), str(tmp_path / "image")
    check_models(run(**{f"{MODEL}.path": text}), TANDEM)
    with refused("TP451", setting="actor_rollout_ref.model.path"):
        check_models(run(**{f"{MODEL}.path": image}), TANDEM)
    with refused("TP451", setting="tandem.junior", model=image):
        juniors = TandemConfig.from_mapping({"junior": [text, image]})
        check_models(run(**{f"{MODEL}.path": text}), juniors)


@pytest.mark.parametrize(
    ("verl", "vllm", "unproven", "code", "warned"),
    [
        ("0.9.1", "0.29.0+cpu", [], None, []),
        ("0.9.0", "0.23.1", [], None, ["verl 0.9.0", "vllm 0.23.1"]),
        ("0.8.0", "0.29.0", [*UNPROVEN], "TP376", []),
        ("0.10.0", "0.29.0", [*UNPROVEN], "TP376", []),
        ("0.10.0.dev0", "0.29.0", [], "TP452", []),
        ("0.10.0.dev0", "0.29.0", ["development_version"], None, ["verl 0.10.0.dev0"]),
    ],
)
def test_other_series_of_verl_are_refused_and_other_releases_said(
    verl: str,
    vllm: str,
    unproven: list[str],
    code: str | None,
    warned: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"verl": verl, "vllm": vllm}
    monkeypatch.setattr("tandem_verl.configuration.running_version", installed.get)
    allowed = allowed_unproven(TandemConfig.from_mapping({"unproven": unproven}))
    if code is not None:
        with refused(code):
            check_versions(allowed)
        return
    warnings = [*check_versions(allowed), *allowed.warnings]
    assert [warning.split(" is not ")[0] for warning in warnings] == warned


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("megatron", f"{ACTOR}.strategy", "megatron"),
        ("veomni", f"{ACTOR}.strategy", "veomni"),
        ("custom_estimator", "algorithm.adv_estimator", "my_estimator"),
        ("custom_loss", f"{ACTOR}.policy_loss.loss_mode", "my_loss"),
        ("distillation", "distillation.enabled", True),
    ],
)
def test_unproven_setting_is_allowed_by_its_name_alone(name: str, path: str, value: Any) -> None:
    config = run(**{path: value})
    with refused("TP443", "TP522") as caught:
        check_run(config, TandemConfig.from_mapping({"unproven": [*UNPROVEN.keys() - {name}]}))
    assert f"add {name} to tandem.unproven" in caught.value.message
    tandem = TandemConfig.from_mapping({"unproven": [name]})
    unproven = allowed_unproven(tandem)
    check_run(config, tandem, unproven)
    (warning,) = unproven.warnings
    assert f"tandem.unproven allows {name}" in warning


@pytest.mark.parametrize(
    ("settings", "code"),
    [({ESTIMATOR: "remax"}, "TP442"), ({f"{ACTOR}.strategy": "nobodys"}, "TP443")],
)
def test_what_is_known_wrong_cannot_be_allowed(settings: dict[str, Any], code: str) -> None:
    with refused(code):
        check_run(run(**settings), TandemConfig.from_mapping({"unproven": [*UNPROVEN]}))
