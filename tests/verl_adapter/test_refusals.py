"""Settings of a run that do not go with tandem, refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
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

OmegaConf = pytest.importorskip("omegaconf", reason="verl's configuration library").OmegaConf


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
GPUS = ("nnodes", "n_gpus_per_node")


@pytest.mark.parametrize("estimator", SOUND_ESTIMATORS)
def test_sound_estimators_pass(estimator: str) -> None:
    check_run(run(**{"algorithm.adv_estimator": estimator}), TANDEM)


def test_bypass_mode_passes() -> None:
    bypass = {"algorithm.rollout_correction": {"bypass_mode": True}}
    check_run(run(**bypass), TANDEM)
    check_run(run(**bypass, **{f"{ACTOR}.policy_loss.loss_mode": BYPASS_LOSS}), TANDEM)


@pytest.mark.parametrize("loss", SOUND_LOSSES)
def test_sound_losses_pass(loss: str) -> None:
    check_run(run(**{f"{ACTOR}.policy_loss.loss_mode": loss}), TANDEM)


@pytest.mark.parametrize("mode", MODES)
def test_modes_that_interrupt_responses_pass(mode: str) -> None:
    check_run(run(**{"trainer.v1.trainer_mode": mode}), TANDEM)


def test_weights_that_are_not_loaded_are_refused_where_they_would_be_synced() -> None:
    backend = {f"{ROLLOUT}.checkpoint_engine": {"backend": "delta_sharded"}}
    check_run(run(**backend), TANDEM)  # a synchronous trainer does not use it
    with refused("TP525", value="delta_sharded"):
        check_run(run(**backend, **{"trainer.v1.trainer_mode": "separate_async"}), TANDEM)


@pytest.mark.parametrize(
    ("estimator", "why"),
    [
        *((name, "position by position") for name in BROKEN_ESTIMATORS),
        *((name, "trainer V1 does not give it") for name in MISSING_ESTIMATORS),
    ],
)
def test_estimators_are_rejected_with_the_reason(estimator: str, why: str) -> None:
    config = run(**{"algorithm.adv_estimator": estimator})
    with refused("TP442", value=estimator):
        check_run(config, TANDEM)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (f"{ROLLOUT}.name", "sglang", "TP513"),
        (f"{ROLLOUT}.pipeline_model_parallel_size", 2, "TP526"),
        (f"{ROLLOUT}.engine_kwargs.vllm.pipeline_parallel_size", 2, "TP526"),
        (f"{ROLLOUT}.engine_kwargs.vllm.speculative_config", {"method": "ngram"}, "TP527"),
        (f"{ROLLOUT}.engine_kwargs.vllm.num_speculative_tokens", 3, "TP527"),
        ("actor_rollout_ref.model.mtp", {"enable": True, "enable_rollout": True}, "TP528"),
        (f"{ROLLOUT}.mtp", {"enable": True, "enable_rollout": True}, "TP528"),
        ("algorithm.adv_estimator", "my_estimator", "TP443"),
        (
            "algorithm",
            {"adv_estimator": "gae", "use_pf_ppo": True},
            "TP517",
        ),
        (
            f"{ACTOR}.policy_loss",
            {
                "loss_mode": "bypass_mode",
                "rollout_correction": {"rollout_is_batch_normalize": True},
            },
            "TP521",
        ),
        (f"{ACTOR}.policy_loss.loss_mode", "my_loss", "TP443"),
        (f"{ACTOR}.strategy", "megatron", "TP443"),
        ("distillation.enabled", True, "TP522"),
        (f"{ACTOR}.use_prefix_grouper", True, "TP520"),
        ("trainer.use_v1", False, "TP512"),
        ("trainer.v1.trainer_mode", "my_mode", "TP523"),
        ("async_training", {"partial_rollout": True}, "TP510"),
        ("rollout", {"nnodes": 1, "n_gpus_per_node": 1}, "TP511"),
        ("actor_rollout_ref.model.lora", {"rank": 8}, "TP503"),
        ("actor_rollout_ref.model.lora_adapter_path", "/a", "TP506"),
        (f"{ROLLOUT}.disaggregation", {"enabled": True}, "TP514"),
        (
            f"{ROLLOUT}.engine_kwargs.vllm.kv_transfer_config",
            {"kv_connector": "NixlConnector"},
            "TP515",
        ),
        (
            "algorithm",
            {"use_kl_in_reward": True, "kl_ctrl": {"type": "adaptive"}},
            "TP516",
        ),
    ],
)
def test_settings_are_refused_by_name(path: str, value: Any, code: str) -> None:
    with refused(code):
        check_run(run(**{path: value}), TANDEM)


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
    config = run(
        **{"trainer.nnodes": 1, "trainer.n_gpus_per_node": 2, f"{ROLLOUT}.{key}": value},
    )
    check_run(config, TandemConfig.from_mapping({"junior": "a"}))
    with refused("TP529"):
        check_run(config, POOL)


def test_the_router_that_a_trainer_named_for_a_pool_is_not_one_of_the_users() -> None:
    sizes = {"trainer.nnodes": 1, "trainer.n_gpus_per_node": 2}
    check_run(run(**{**sizes, f"{ROLLOUT}.router_config_path": ROUTER}), POOL)


def test_every_junior_of_a_pool_is_looked_at(tmp_path: Path) -> None:
    for name, config in (("text", "{}"), ("image", '{"vision_config": {"depth": 2}}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    text, image = str(tmp_path / "text"), str(tmp_path / "image")
    config = run(**{"trainer.nnodes": 1, "trainer.n_gpus_per_node": 2})
    config.actor_rollout_ref.model.path = text
    absent = TandemConfig.from_mapping({"junior": [text, str(tmp_path / "absent")]})
    with refused("TP453"):
        check_run(config, absent)
    sees = TandemConfig.from_mapping({"junior": [text, image]})
    check_run(config, sees)
    with refused("TP451", setting="tandem.junior"):
        check_models(config, sees)


def test_what_only_resembles_a_refused_setting_passes() -> None:
    merged = {"actor_rollout_ref.model": {"lora_rank": 8, "lora": {"rank": 0, "merge": True}}}
    in_reward = {"use_kl_in_reward": True, "kl_ctrl": {"type": "fixed"}}
    unused = {"use_kl_in_reward": False, "kl_ctrl": {"type": "adaptive"}}
    together = {f"{ROLLOUT}.disaggregation": {"enabled": False}}
    for passing in (merged, {"algorithm": in_reward}, {"algorithm": unused}, together):
        check_run(run(**passing), TANDEM)


def test_adapters_that_are_sent_alone_need_an_engine_in_lockstep_that_takes_them() -> None:
    adapter = {"lora_rank": 8}
    drafting = TandemConfig.from_mapping({"mode": "speculative"})
    backend = {f"{ROLLOUT}.checkpoint_engine": {"backend": "nccl"}}
    sent = {"actor_rollout_ref.model": adapter}
    check_run(run(**sent), TANDEM)
    with refused("TP504", value=8):
        check_run(run(**sent), drafting)
    with refused("TP505", value=8):
        check_run(run(**sent, **backend), TANDEM)
    merged = {"actor_rollout_ref.model": {**adapter, "lora": {"rank": 8, "merge": True}}}
    check_run(run(**merged, **backend), TANDEM)
    check_run(run(**merged), drafting)


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
    read_the_base(config, TandemConfig.from_mapping({} if junior is None else {"junior": junior}))
    assert config.actor_rollout_ref.rollout.load_format == load_format


def test_the_base_of_a_run_without_an_adapter_is_left_alone() -> None:
    model = {"path": "/model", "lora_rank": 0, "lora": {"rank": 0, "merge": False}}
    config = run(**{"actor_rollout_ref.model": model, f"{ROLLOUT}.load_format": "dummy"})
    read_the_base(config, TANDEM)
    assert config.actor_rollout_ref.rollout.load_format == "dummy"


def test_multimodal_models_are_refused(tmp_path: Path) -> None:
    text, image = tmp_path / "text", tmp_path / "image"
    for folder, config in (
        (text, {"vision_config": None}),
        (image, {"vision_config": {"depth": 2}}),
    ):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
    check_models(run(**{"actor_rollout_ref.model.path": str(text)}), TANDEM)
    with refused("TP451", setting="actor_rollout_ref.model.path"):
        check_models(run(**{"actor_rollout_ref.model.path": str(image)}), TANDEM)
    junior = TandemConfig.from_mapping({"junior": str(image)})
    with refused("TP451", setting="tandem.junior", tower="vision_config"):
        check_models(run(**{"actor_rollout_ref.model.path": str(text)}), junior)


def test_missing_junior_folder_is_refused_and_a_hub_name_left_alone(tmp_path: Path) -> None:
    for junior in ("Qwen/Qwen3-0.6B", str(tmp_path)):
        check_run(run(), TandemConfig.from_mapping({"junior": junior}))
    for junior in (str(tmp_path / "no"), "./no", "~/no"):
        with refused("TP453", junior=junior):
            check_run(run(), TandemConfig.from_mapping({"junior": junior}))


def test_other_series_of_verl_are_refused_and_other_releases_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"verl": "0.9.1", "vllm": "0.29.0+cpu"}
    monkeypatch.setattr("tandem_verl.configuration.running_version", installed.get)
    unproven = allowed_unproven(TANDEM)
    assert check_versions(unproven) == []
    for version in ("0.8.0", "0.10.0", "1.0"):
        installed["verl"] = version
        with refused("TP376"):
            check_versions(unproven)
    installed |= {"verl": "0.9.0", "vllm": "0.23.1"}
    assert [warning.split(" is not ")[0] for warning in check_versions(unproven)] == [
        "verl 0.9.0",
        "vllm 0.23.1",
    ]


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


EVERYTHING = TandemConfig.from_mapping({"unproven": [*UNPROVEN]})


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"algorithm.adv_estimator": "remax"}, "TP442"),
        ({f"{ACTOR}.strategy": "nobodys"}, "TP443"),
        (
            {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.router_replay": {"mode": "R3"}},
            "TP519",
        ),
        ({f"{ROLLOUT}.name": "sglang"}, "TP513"),
    ],
)
def test_what_is_known_wrong_cannot_be_allowed(settings: dict[str, Any], code: str) -> None:
    with refused(code):
        check_run(run(**settings), EVERYTHING)


def test_imitation_does_not_go_with_an_unproven_engine() -> None:
    tandem = TandemConfig.from_mapping({"unproven": ["megatron"], "lambda_jun": 0.1})
    with refused("TP518", sound="fsdp, fsdp2"):
        check_run(run(**{f"{ACTOR}.strategy": "megatron"}), tandem)


def test_dumps_of_the_adapter_are_refused_since_verl_has_its_own() -> None:
    tandem = TandemConfig.from_mapping({"rollouts": "runs/rollouts"})
    with refused("TP524"):
        check_run(run(), tandem)


def test_unknown_name_is_refused_with_the_list() -> None:
    tandem = TandemConfig.from_mapping({"unproven": ["gae"]})
    with refused("TP440", name="gae"):
        check_run(run(), tandem)


def test_development_version_of_verl_is_allowed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"verl": "0.10.0.dev0", "vllm": "0.29.0"}
    monkeypatch.setattr("tandem_verl.configuration.running_version", installed.get)
    with refused("TP452"):
        check_versions(allowed_unproven(TANDEM))
    unproven = allowed_unproven(EVERYTHING)
    assert check_versions(unproven) == []
    assert "verl 0.10.0.dev0 is not a version" in unproven.warnings[0]
    installed["verl"] = "0.10.0"  # another series, released: its insides are known to be others
    with refused("TP376"):
        check_versions(unproven)
