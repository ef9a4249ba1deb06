"""verl as the start of a run must know it: settings rejected in tandem before any worker starts.

The values listed as sound under a mask with holes were checked by reading verl 0.9.1's
``core_algos.py`` and are verified by ``tests/adapters/tandem_verl/test_masks_with_holes.py``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from tandem_plugin.errors import ConfigError
from tandem_plugin.training.start import TrainerRun
from tandem_plugin.unsupported import Option, Unsupported
from tandem_verl.lora import check_adapter

if TYPE_CHECKING:
    from omegaconf import DictConfig

SUMMING_ESTIMATORS = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "rloo",
    "rloo_vectorized",
    "reinforce_plus_plus_baseline",
    "opo",
    "gpg",
)
"""Advantage estimators that sum a response's reward at any position, and otherwise use only the
trained tokens."""

TOKEN_ESTIMATORS = ("gae", "reinforce_plus_plus")
"""Advantage estimators that drop a reward on a token that is not trained: the trainer moves it."""

SOUND_ESTIMATORS = SUMMING_ESTIMATORS + TOKEN_ESTIMATORS

_BY_POSITION = (
    "it compares the responses to a prompt position by position, where one may be the senior's "
    "and another the junior's"
)

BROKEN_ESTIMATORS = {
    "optimal_token_baseline": _BY_POSITION,
    "tir_optimal_token_baseline": _BY_POSITION,
}
"""Advantage estimators that a mask with holes breaks, and how."""

SOUND_LOSSES = (
    "vanilla",
    "gspo",
    "geo_mean",
    "gpg",
    "dro",
    "cispo",
    "sapo",
    "clip_cov",
    "kl_cov",
    "dppo_tv",
    "dppo_kl",
)
"""Policy losses that neither depend on nor affect tokens outside the mask."""

_FSDP = ("fsdp", "fsdp2", "fsdp_turbo", "veomni")
"""FSDP's engine, and those built on it: ``tests/adapters/tandem_verl/test_engines.py`` pins how."""

_SOUND_ENGINES = (*_FSDP, "megatron")
"""Training engines (``actor.strategy``) whose gradients were compared with a plain loop's."""

_UNPROVEN_ENGINES = ("torchtitan", "automodel")

UNPROVEN = {
    "megatron": "parts of Megatron that no test compares with a reference",
    **{engine: f"actor_rollout_ref.actor.strategy={engine}" for engine in _UNPROVEN_ENGINES},
    "npu": "trainer.device=npu (Ascend), which was never tried",
    "custom_estimator": "an advantage estimator of your own",
    "custom_loss": "a policy loss of your own",
    "router_replay": "router_replay.mode=R3",
    "development_version": "a development version of verl",
}
"""Settings rejected only because they have not been verified, by the name that allows them."""

_MODEL, _ACTOR = "actor_rollout_ref.model", "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_BACKEND = f"{_ROLLOUT}.checkpoint_engine.backend"


def _sends_adapter(rank: int | None, of: Option) -> bool:
    """Whether an adapter (LoRA) of this rank is sent by a backend that cannot send one."""
    is_sent = bool(rank) and not of(f"{_MODEL}.lora.merge")
    return is_sent and of(_BACKEND) not in (None, "naive")


def _replays_r3(engine: str, of: Option) -> bool:
    keys = (f"{_ACTOR}.router_replay.mode", f"{_ACTOR}.{engine}.router_replay.mode")
    return engine not in _FSDP[:2] and "R3" in map(of, keys)


def _is_on_in_megatron(value: Any, of: Option) -> bool:
    return bool(value) and of(f"{_ACTOR}.strategy") == "megatron"


_MEGATRON_UNTESTED = (
    f"{_ACTOR}.megatron.dynamic_context_parallel",
    f"{_ACTOR}.megatron.qat.enable",
    f"{_MODEL}.mtp.enable",
)
"""Settings that change how Megatron divides a batch, what it adds to the loss, or what it sends.
``use_megatron_fsdp`` and ``vanilla_mbridge`` reach neither batch nor loss, nor what weights are."""


_UNSUPPORTED = (
    Unsupported(
        "trainer.use_v1", lambda value, _: value is not None and not value, "verl-trainer-not-v1"
    ),
    Unsupported(f"{_ROLLOUT}.name", lambda name, _: name != "vllm", "verl-engine-not-vllm"),
    Unsupported.on(f"{_ROLLOUT}.disaggregation.enabled", "verl-disaggregation-unsupported"),
    Unsupported.untested("trainer.device", (None, "cuda", "cpu"), "npu"),
    Unsupported(f"{_MODEL}.lora_rank", _sends_adapter, "verl-adapter-backend-unsupported"),
    Unsupported(f"{_MODEL}.lora.rank", _sends_adapter, "verl-adapter-backend-unsupported"),
    Unsupported(
        _BACKEND,
        lambda name, of: (
            name == "delta_sharded" and of("trainer.v1.trainer_mode") == "separate_async"
        ),
        "verl-weights-bypass-loading",
    ),
    *(
        Unsupported.broken("algorithm.adv_estimator", (name,), why, SOUND_ESTIMATORS)
        for name, why in BROKEN_ESTIMATORS.items()
    ),
    Unsupported.untested("algorithm.adv_estimator", SOUND_ESTIMATORS, "custom_estimator"),
    Unsupported(
        "algorithm.kl_ctrl.type",
        lambda kind, of: kind == "adaptive" and bool(of("algorithm.use_kl_in_reward")),
        "verl-adaptive-kl",
    ),
    Unsupported.untested(f"{_ACTOR}.strategy", _SOUND_ENGINES, "{value}"),
    Unsupported(
        "critic.strategy",
        lambda engine, of: of("algorithm.adv_estimator") == "gae" and engine not in _SOUND_ENGINES,
        "trainer-setting-untested",
        "{value}",
        fields={"sound": ", ".join(_SOUND_ENGINES)},
    ),
    *(
        Unsupported(key, _is_on_in_megatron, "verl-megatron-setting-untested", "megatron")
        for key in _MEGATRON_UNTESTED
    ),
    Unsupported(
        f"{_MODEL}.lora.rank",
        lambda rank, of: _is_on_in_megatron(rank, of) and not of(f"{_MODEL}.lora.merge"),
        "verl-megatron-adapter-untested",
        "megatron",
    ),
    Unsupported(
        "tandem.lambda_jun",
        lambda weight, of: weight > 0 and of(f"{_ACTOR}.strategy") not in _SOUND_ENGINES,
        "verl-loss-term-unsupported",
        fields={"sound": ", ".join(_SOUND_ENGINES)},
    ),
    Unsupported(f"{_ACTOR}.strategy", _replays_r3, "verl-router-replay-untested", "router_replay"),
    Unsupported.on(f"{_ACTOR}.use_prefix_grouper", "verl-mask-as-length"),
    Unsupported.untested(f"{_ACTOR}.policy_loss.loss_mode", (None, *SOUND_LOSSES), "custom_loss"),
    Unsupported(
        "tandem.rollouts", lambda folder, _: folder is not None, "verl-setting-of-openrlhf"
    ),
)
"""The table, in the order in which settings are checked."""


class VerlRun(TrainerRun):
    """A run of verl's; its settings are all known when verl validates its configuration."""

    package = "verl"
    in_additional_config = True
    unsupported = _UNSUPPORTED
    unproven = UNPROVEN

    @classmethod
    def of(cls, config: DictConfig) -> VerlRun:
        """config: verl's whole configuration, by whose dotted paths the table has settings."""
        setting, model = partial(OmegaConf.select, config), config.actor_rollout_ref.model
        # verl's agent loops fix the penalty of repetitions at 1.
        sampled = [
            f"{_ROLLOUT}.{name}"
            for name in ("top_k", "top_p", "engine_kwargs.vllm.logits_processors")
        ]
        return cls(
            setting,
            engine_options(config).get,
            str(model.path),
            resumes=False,  # verl finds its checkpoint after it has loaded the model
            sampling={name: setting(name) for name in sampled},
            check_adapter=partial(check_adapter, model),
        )

    @classmethod
    def untested_version(cls) -> str:
        """Only a development version may be allowed."""
        return "development_version" if "dev" in cls.version() else ""


def engine_options(config: DictConfig) -> dict[str, Any]:
    """The arguments of vLLM that a run's settings lead to, as far as tandem may reject them.

    config: verl's whole configuration.
    """

    def of(key: str, below: str = _ROLLOUT) -> Any:
        return OmegaConf.select(config, f"{below}.{key}")

    drafts = of("mtp.enable") and of("mtp.enable_rollout")
    rank = of("lora.rank", _MODEL) or of("lora_rank", _MODEL)
    implied = {
        "pipeline_parallel_size": of("pipeline_model_parallel_size"),
        "speculative_config": of("mtp") if drafts else None,
        "enable_lora": bool(rank) and not of("lora.merge", _MODEL),
    }
    of_user = {
        name.replace("-", "_"): value for name, value in (of("engine_kwargs.vllm") or {}).items()
    }
    return implied | {name: value for name, value in of_user.items() if value is not None}


def check_prompts(dataset: Any, *, images: bool = False) -> None:
    """Raise :class:`ConfigError` if verl would send a prompt with a video, audio, or an image.

    dataset: verl's ``RLHFDataset``. images: whether the run's prompts may have images. What a class
    of the user's own adds is left to the engine.
    """
    rows: Any = getattr(dataset, "dataframe", None)
    for name in ("video_key", "audio_key") if images else ("image_key", "video_key", "audio_key"):
        key = getattr(dataset, name, None)
        if key not in getattr(rows, "column_names", ()):
            continue
        if any(row[key] for row in rows.select_columns([key])):
            files = ", ".join(map(str, dataset.original_data_files))
            raise ConfigError("verl-images-unsupported", key=key, files=files)
