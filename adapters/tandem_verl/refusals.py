"""What a verl run may not combine with tandem: rejected before any worker starts.

The values listed as sound under a mask with holes were checked by reading verl 0.9.1's
``core_algos.py`` and are verified by ``tests/verl_adapter/test_masks_with_holes.py``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.training.refusals import (
    Refusal,
    Settings,
    Unproven,
    broken,
    check_refusals,
    each,
    given,
    is_on,
    too_many_juniors,
    untested,
)
from tandem_plugin.training.settings import check_settings
from tandem_verl.server import ROUTER, engines_that_stay
from tandem_verl.switch import ASYNC_TRAINING, BYPASS_LOSS, MODES, OUR_BYPASS_LOSS

__all__ = [
    "BROKEN_ESTIMATORS",
    "MISSING_ESTIMATORS",
    "REFUSALS",
    "REWARD_TO_GO_ESTIMATORS",
    "SOUND_ENGINES",
    "SOUND_ESTIMATORS",
    "SOUND_LOSSES",
    "UNPROVEN",
    "WHOLE_RESPONSE_ESTIMATORS",
    "allowed_unproven",
    "check_run",
]

WHOLE_RESPONSE_ESTIMATORS = (
    "grpo",
    "grpo_vectorized",
    "grpo_passk",
    "rloo",
    "rloo_vectorized",
    "reinforce_plus_plus_baseline",
    "opo",
    "gpg",
)
"""Advantage estimators that sum a response's reward wherever it stands, and use only the trained
tokens else."""

REWARD_TO_GO_ESTIMATORS = ("reinforce_plus_plus", "gae")
"""Advantage estimators that sum, at each trained token, the rewards from there on. They drop a
reward that stands on a token that is not trained, and are exact once each stands on one
(:mod:`tandem_verl.advantages`)."""

SOUND_ESTIMATORS = (*WHOLE_RESPONSE_ESTIMATORS, *REWARD_TO_GO_ESTIMATORS)
"""Advantage estimators that give a trained token what it has without the others in between."""

MISSING_ESTIMATORS = {
    "remax": "remax's greedy baselines",
    "tir_optimal_token_baseline": "sum_pi_squared",
    "gdpo": "gdpo's components of the reward",
}
"""Estimators that verl 0.9's trainer V1 cannot run, in tandem or not, and what it does not give
them."""

BROKEN_ESTIMATORS = ("optimal_token_baseline",)
"""Advantage estimators that compare responses position by position, the other author's included."""

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
"""Policy losses that neither see nor move a token outside the mask."""

SOUND_ENGINES = ("fsdp", "fsdp2")
"""Training engines (``actor.strategy``) with which real runs were held against a reference."""

_UNPROVEN_ENGINES = ("megatron", "fsdp_turbo", "veomni", "torchtitan", "automodel")

UNPROVEN = {
    **{engine: f"actor_rollout_ref.actor.strategy={engine}" for engine in _UNPROVEN_ENGINES},
    "custom_estimator": "an advantage estimator of your own",
    "custom_loss": "a policy loss of your own",
    "distillation": "distillation.enabled=True",
    "router_replay": "router_replay.mode=R3",
    "development_version": "a development version of verl",
}
"""What is refused only because nobody has shown that it works, by the name that allows it."""

_MODEL, _ACTOR = "actor_rollout_ref.model", "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_ENGINE = f"{_ROLLOUT}.engine_kwargs.vllm"
_LOSS = f"{_ACTOR}.policy_loss.loss_mode"
_MODE = "trainer.v1.trainer_mode"
_RANK = f"{_MODEL}.lora_rank"
_BACKEND = f"{_ROLLOUT}.checkpoint_engine.backend"


def _sent(rank: Any, of: Settings) -> bool:
    """Whether the engine gets an adapter (LoRA) of this rank by itself, without the base."""
    return bool(rank) and not of(f"{_MODEL}.lora.merge")


def _replays_r3(engine: Any, of: Settings) -> bool:
    keys = (f"{_ACTOR}.router_replay.mode", f"{_ACTOR}.{engine}.router_replay.mode")
    return engine not in SOUND_ENGINES and "R3" in map(of, keys)


REFUSALS = (
    # verl's experimental trainers, known by what only their configurations have: they begin and
    # update in ways of their own, where no batch is checked.
    Refusal(ASYNC_TRAINING, given, "TP510"),
    Refusal("rollout", given, "TP511"),
    Refusal("trainer.use_v1", lambda value, of: value is not None and not value, "TP512"),
    Refusal(f"{_ROLLOUT}.name", lambda name, of: name != "vllm", "TP513"),
    *each(
        (f"{_ROLLOUT}.pipeline_model_parallel_size", f"{_ENGINE}.pipeline_parallel_size"),
        lambda size, of: int(size or 1) > 1,
        "TP526",
    ),
    Refusal(f"{_ROLLOUT}.disaggregation.enabled", is_on, "TP514"),
    Refusal(f"{_ENGINE}.kv_transfer_config", given, "TP515"),
    *each(
        (
            f"{_ENGINE}.{name}"
            for name in ("speculative_config", "speculative_model", "num_speculative_tokens")
        ),
        given,
        "TP527",
    ),
    *each(
        (f"{_ROLLOUT}.mtp", f"{_MODEL}.mtp"),
        lambda mtp, of: mtp is not None and bool(mtp.get("enable") and mtp.get("enable_rollout")),
        "TP528",
    ),
    Refusal(f"{_MODEL}.lora.rank", _sent, "TP503"),
    *each(
        (f"{_MODEL}.lora_adapter_path", f"{_MODEL}.lora.adapter_path"),
        lambda path, of: _sent(path, of) and not of(_RANK),
        "TP506",
    ),
    Refusal(_RANK, lambda rank, of: _sent(rank, of) and of("tandem.max_drafts"), "TP504"),
    Refusal(
        _RANK, lambda rank, of: _sent(rank, of) and of(_BACKEND) not in (None, "naive"), "TP505"
    ),
    too_many_juniors("tandem.juniors", engines_that_stay),
    *each(
        (f"{_ROLLOUT}.router_config_path", f"{_ROLLOUT}.full_determinism"),
        lambda value, of: value and value != ROUTER and len(of("tandem.juniors")) > 1,
        "TP529",
    ),
    Refusal(
        "algorithm.kl_ctrl.type",
        lambda kind, of: kind == "adaptive" and bool(of("algorithm.use_kl_in_reward")),
        "TP516",
    ),
    broken(
        "algorithm.adv_estimator",
        BROKEN_ESTIMATORS,
        "it compares the responses to a prompt position by position, where one may be the senior's "
        "and another the junior's",
        SOUND_ESTIMATORS,
    ),
    broken(
        "algorithm.adv_estimator",
        tuple(MISSING_ESTIMATORS),
        "verl's trainer V1 does not give it what it needs, with or without tandem ("
        f"{', '.join(MISSING_ESTIMATORS.values())})",
        SOUND_ESTIMATORS,
    ),
    untested("algorithm.adv_estimator", SOUND_ESTIMATORS, "custom_estimator"),
    Refusal(
        "algorithm.use_pf_ppo",
        lambda value, of: bool(value) and of("algorithm.adv_estimator") == "gae",
        "TP517",
    ),
    untested(f"{_ACTOR}.strategy", SOUND_ENGINES, "{value}", reach=""),
    Refusal(
        "tandem.lambda_jun",
        lambda weight, of: weight > 0 and of(f"{_ACTOR}.strategy") not in SOUND_ENGINES,
        "TP518",
        fields={"sound": ", ".join(SOUND_ENGINES)},
    ),
    Refusal(f"{_ACTOR}.strategy", _replays_r3, "TP519", "router_replay"),
    Refusal(f"{_ACTOR}.use_prefix_grouper", is_on, "TP520"),
    untested(_LOSS, (None, *SOUND_LOSSES, BYPASS_LOSS, OUR_BYPASS_LOSS), "custom_loss"),
    Refusal(
        f"{_ACTOR}.policy_loss.rollout_correction.rollout_is_batch_normalize",
        lambda value, of: bool(value) and of(_LOSS) in (BYPASS_LOSS, OUR_BYPASS_LOSS),
        "TP521",
    ),
    Refusal("distillation.enabled", is_on, "TP522", "distillation"),
    Refusal(_MODE, lambda mode, of: mode not in MODES, "TP523", fields={"sound": ", ".join(MODES)}),
    Refusal("tandem.rollouts", given, "TP524"),
    Refusal(
        _BACKEND,
        lambda name, of: name == "delta_sharded" and of(_MODE) == "separate_async",
        "TP525",
    ),
)
"""The table, in the order in which settings are looked at."""


def allowed_unproven(tandem: TandemConfig) -> Unproven:
    """The entries of :data:`UNPROVEN` that a run allows; :class:`ConfigError` for other names."""
    return Unproven(tandem, UNPROVEN)


def check_run(config: Any, tandem: TandemConfig, unproven: Unproven | None = None) -> None:
    """Raise :class:`ConfigError` for the first setting that is incompatible with tandem.

    config: verl's whole configuration. unproven: what the run allows, by default the value in
    ``tandem``.
    """
    from omegaconf import OmegaConf

    def setting(key: str) -> Any:
        if key.startswith("tandem."):
            return getattr(tandem, key.removeprefix("tandem."))
        value = OmegaConf.select(config, key)
        return value.value if isinstance(value, Enum) else value

    check_refusals(REFUSALS, setting, unproven or allowed_unproven(tandem))
    check_settings(tandem)
