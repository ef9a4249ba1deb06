"""Settings of a run that do not go with tandem, refused by name."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from refused import refused
from started import started

from tandem_plugin import TandemConfig
from tandem_plugin.training.start import Start
from tandem_verl.configuration import prepare, read_the_base
from tandem_verl.settings import MANAGER, MODES
from tandem_verl.start import (
    BROKEN_ESTIMATORS,
    SOUND_ESTIMATORS,
    SOUND_LOSSES,
    UNPROVEN,
    VerlRun,
    check_prompts,
)
from tandem_verl.trainer import TrainerInTandem


def run(**overrides: Any) -> Any:
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "model": {"path": "senior"},
                "actor": {"strategy": "fsdp2", "policy_loss": {"loss_mode": "vanilla"}},
                "rollout": {
                    "name": "vllm",
                    "load_format": "dummy",
                    "engine_kwargs": {"vllm": {"additional_config": {"tandem": {}}}},
                },
            },
            "algorithm": {"adv_estimator": "grpo", "rollout_correction": None},
            "trainer": {"use_v1": True, "v1": {"trainer_mode": "sync"}},
            "critic": {"strategy": "fsdp"},
            "distillation": {"enabled": False},
        }
    )
    for path, value in overrides.items():
        OmegaConf.update(config, path, value)
    OmegaConf.set_struct(config, True)
    return config


def checked(config: Any, settings: dict[str, Any]) -> Start:
    return started(VerlRun.of(config), TandemConfig.from_mapping(settings))


ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm.additional_config"


LOSS, MODE = f"{ACTOR}.policy_loss.loss_mode", "trainer.v1.trainer_mode"
MODEL, ESTIMATOR = "actor_rollout_ref.model", "algorithm.adv_estimator"
BACKEND = f"{ROLLOUT}.checkpoint_engine"
MEGATRON = {f"{ACTOR}.strategy": "megatron"}
MERGED = {"lora_rank": 8, "lora": {"rank": 8, "merge": True}}

PASSING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({ESTIMATOR: one}, {}) for one in SOUND_ESTIMATORS),
    *(({LOSS: one}, {}) for one in SOUND_LOSSES),
    *(({MODE: one}, {}) for one in MODES),
    (MEGATRON, {}),
    (MEGATRON, {"lambda_jun": 0.1}),
    ({**MEGATRON, f"{ACTOR}.router_replay": {"mode": "R2"}}, {}),
    ({**MEGATRON, f"{ACTOR}.router_replay": {"mode": "R3"}}, {"unproven": [*UNPROVEN]}),
    ({**MEGATRON, MODEL: {"lora": {"rank": 8, "merge": True}}, BACKEND: {"backend": "nccl"}}, {}),
    ({**MEGATRON, MODEL: {"lora": {"rank": 8}}}, {"unproven": ["megatron"]}),
    ({**MEGATRON, f"{ACTOR}.megatron": {"qat": {"enable": False}}}, {}),
    ({**MEGATRON, f"{ACTOR}.megatron": {"use_megatron_fsdp": True, "vanilla_mbridge": True}}, {}),
    ({f"{MODEL}.mtp": {"enable": True}}, {}),  # which Megatron alone has
    ({ESTIMATOR: "grpo", "critic.strategy": "automodel"}, {}),  # no critic is trained
    ({f"{ACTOR}.strategy": "veomni"}, {"lambda_jun": 0.1}),
    ({f"{ACTOR}.strategy": "fsdp_turbo"}, {}),
    ({"trainer.device": "npu"}, {"unproven": ["npu"]}),
    ({ESTIMATOR: "gae", "critic.strategy": "fsdp2"}, {}),
    ({"distillation.enabled": True}, {}),
    ({"distillation.enabled": True, **MEGATRON}, {"lambda_jun": 0.1}),
    ({BACKEND: {"backend": "delta_sharded"}}, {}),  # a synchronous trainer does not use it
    ({f"{ROLLOUT}.agent": {"agent_loop_manager_class": MANAGER}}, {}),
    ({MODEL: {"lora_rank": 8}}, {}),
    ({MODEL: MERGED, BACKEND: {"backend": "nccl"}}, {}),
]


@pytest.mark.parametrize(("settings", "tandem"), PASSING)
def test_sound_settings_pass(settings: dict[str, Any], tandem: dict[str, Any]) -> None:
    checked(run(**settings), tandem)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *(({ESTIMATOR: one}, {}, "trainer-setting-incorrect") for one in BROKEN_ESTIMATORS),
    ({ESTIMATOR: "my_estimator"}, {}, "trainer-setting-untested"),
    ({LOSS: "bypass_mode"}, {}, "trainer-setting-untested"),
    ({f"{ACTOR}.strategy": "automodel"}, {}, "trainer-setting-untested"),
    ({ESTIMATOR: "gae", "critic.strategy": "automodel"}, {}, "trainer-setting-untested"),
    (
        {**MEGATRON, f"{ACTOR}.megatron": {"dynamic_context_parallel": True}},
        {},
        "verl-megatron-setting-untested",
    ),
    (
        {**MEGATRON, f"{ACTOR}.megatron": {"qat": {"enable": True}}},
        {},
        "verl-megatron-setting-untested",
    ),
    ({**MEGATRON, f"{MODEL}.mtp": {"enable": True}}, {}, "verl-megatron-setting-untested"),
    ({**MEGATRON, MODEL: {"lora": {"rank": 8}}}, {}, "verl-megatron-adapter-untested"),
    (
        {MODEL: {"lora_rank": 8}, BACKEND: {"backend": "nccl"}},
        {},
        "verl-adapter-backend-unsupported",
    ),
    (
        {**MEGATRON, MODEL: {"lora": {"rank": 8}}, BACKEND: {"backend": "nccl"}},
        {"unproven": ["megatron"]},
        "verl-adapter-backend-unsupported",
    ),
    ({f"{ROLLOUT}.disaggregation": {"enabled": True}}, {}, "verl-disaggregation-unsupported"),
    ({"trainer.device": "npu"}, {}, "trainer-setting-untested"),
    ({"trainer.use_v1": False}, {}, "verl-trainer-not-v1"),
    ({f"{ROLLOUT}.name": "sglang"}, {}, "verl-engine-not-vllm"),
    (
        {"algorithm.kl_ctrl": {"type": "adaptive"}, "algorithm.use_kl_in_reward": True},
        {},
        "verl-adaptive-kl",
    ),
    (
        {f"{ACTOR}.strategy": "torchtitan"},
        {"unproven": ["torchtitan"], "lambda_jun": 0.1},
        "verl-loss-term-unsupported",
    ),
    (
        {**MEGATRON, f"{ACTOR}.router_replay": {"mode": "R3"}},
        {"unproven": ["megatron"]},
        "verl-router-replay-untested",
    ),
    ({f"{ACTOR}.use_prefix_grouper": True}, {}, "verl-mask-as-length"),
    ({}, {"rollouts": "runs/rollouts"}, "verl-setting-of-openrlhf"),
    (
        {BACKEND: {"backend": "delta_sharded"}, MODE: "separate_async"},
        {},
        "verl-weights-bypass-loading",
    ),
    ({}, {"unproven": ["gae"]}, "unproven-name-unknown"),
    # What is known to be wrong cannot be allowed.
    ({ESTIMATOR: "optimal_token_baseline"}, {"unproven": [*UNPROVEN]}, "trainer-setting-incorrect"),
    ({f"{ACTOR}.strategy": "nobodys"}, {"unproven": [*UNPROVEN]}, "trainer-setting-untested"),
]


@pytest.mark.parametrize(("settings", "tandem", "code"), REFUSED)
def test_settings_are_refused_by_name(
    settings: dict[str, Any], tandem: dict[str, Any], code: str
) -> None:
    with refused(code):
        checked(run(**settings), tandem)


VL = {"architectures": ["Qwen3VLForConditionalGeneration"], "vision_config": {}}
VLLM = f"{ROLLOUT}.engine_kwargs.vllm"
SEEN: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({f"{ROLLOUT}.pipeline_model_parallel_size": 2}, {}, "pipeline-parallel-unsupported"),
    ({f"{VLLM}.pipeline_parallel_size": 2}, {}, "pipeline-parallel-unsupported"),
    ({f"{VLLM}.speculative_config": {"method": "ngram"}}, {}, "speculative-config-unsupported"),
    ({f"{VLLM}.speculative-config": {"method": "ngram"}}, {}, "speculative-config-unsupported"),
    (
        {f"{ROLLOUT}.mtp": {"enable": True, "enable_rollout": True}},
        {},
        "speculative-config-unsupported",
    ),
    ({f"{MODEL}.lora_rank": 8}, {"mode": "speculative"}, "speculative-setting-unsupported"),
    ({f"{MODEL}.lora": {"rank": 8}}, {"mode": "speculative"}, "speculative-setting-unsupported"),
    ({}, {"junior": "/nonexistent/model"}, "junior-not-checkpoint"),
    ({f"{MODEL}.path": "{vl}"}, {}, "multimodal-model-unsupported"),
    ({}, {"junior": "{vl}"}, "multimodal-model-unsupported"),
]


@pytest.mark.parametrize(("settings", "tandem", "code"), SEEN)
def test_what_the_engine_would_reject_ends_in_the_driver(
    settings: dict[str, Any], tandem: dict[str, Any], code: str, tmp_path: Path
) -> None:
    """Before the actor is loaded, which verl does first."""
    (tmp_path / "config.json").write_text(json.dumps(VL))
    given = [
        {key: str(tmp_path) if value == "{vl}" else value for key, value in one.items()}
        for one in (settings, tandem)
    ]
    config = run(**{f"{ENGINE}.tandem": given[1]}, **given[0])
    with refused(code):
        prepare(config)


def test_engine_options_that_are_off_pass() -> None:
    off = {"mtp": {"enable": True, "enable_rollout": False}, "pipeline_model_parallel_size": 1}
    engine = {"speculative_config": None, "enable_prompt_embeds": False}
    config = run(**{f"{ROLLOUT}.{key}": value for key, value in off.items()})
    OmegaConf.update(config, VLLM, engine, force_add=True)
    OmegaConf.update(config, f"{ENGINE}.tandem", {"mode": "speculative"}, force_add=True)
    OmegaConf.update(config, MODEL, MERGED, force_add=True)
    prepare(config)


@pytest.mark.parametrize(
    ("junior", "lora", "given", "load_format"),
    [
        (None, {}, "dummy", "auto"),
        ("/model", {}, "dummy", "auto"),
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


def test_the_base_of_megatrons_adapter_is_read_too() -> None:
    model = {"path": "/model", "lora": {"rank": 8}}
    config = run(**{MODEL: model, f"{ROLLOUT}.load_format": "dummy"})
    read_the_base(config, TandemConfig())
    assert config.actor_rollout_ref.rollout.load_format == "auto"


@pytest.mark.parametrize(
    ("version", "unproven", "code"),
    [
        ("0.8.0", [*UNPROVEN], "framework-version-untested"),
        ("0.10.0.dev0", [], "trainer-version-untested"),
        ("0.10.0.dev0", ["development_version"], None),
    ],
)
def test_other_series_of_verl_is_refused_but_for_a_development_version_by_name(
    version: str, unproven: list[str], code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "verl", SimpleNamespace(__version__=version))
    config = run(**{f"{ENGINE}.tandem": {"unproven": unproven}})
    if code is None:
        prepare(config)
    else:
        with refused(code):
            prepare(config)


def dataset(folder: Path, **columns: Any) -> Any:
    """verl's, of two prompts with these further columns."""
    import datasets
    from verl.utils.dataset.rl_dataset import RLHFDataset

    prompts = [[{"role": "user", "content": text}] for text in ("one", "two")]
    file = folder / "prompts.parquet"
    datasets.Dataset.from_dict({"prompt": prompts, **columns}).to_parquet(file)
    settings = {"filter_overlong_prompts": False, "image_key": "pictures", "cache_dir": str(folder)}
    return RLHFDataset([str(file)], tokenizer=None, config=OmegaConf.create(settings))


@pytest.mark.parametrize("column", ["pictures", "videos", "audios"])
def test_prompts_with_images_are_rejected_before_workers_are_created(
    column: str, tmp_path: Path
) -> None:
    class Trainer:
        train_dataset = dataset(tmp_path, **{column: [[], []], "images": [["unread.png"], []]})

        def _init_dataloader(self) -> None:
            self.val_dataset = dataset(tmp_path, **{column: [[], ["file"]]})

    trainer = object.__new__(type("Both", (TrainerInTandem, Trainer), {}))
    trainer._tandem = SimpleNamespace(config=TandemConfig())
    with refused("verl-images-unsupported", key=column, files=str(tmp_path / "prompts.parquet")):
        trainer._init_dataloader()
    trainer._tandem = SimpleNamespace(config=TandemConfig(images=True))
    with refused("verl-images-unsupported") if column != "pictures" else nullcontext():
        trainer._init_dataloader()
    check_prompts(Trainer.train_dataset)
    check_prompts(SimpleNamespace(dataframe=None))  # of a class of the user's own
