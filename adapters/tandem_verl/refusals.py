"""What a verl run may not combine with tandem: refused by name before any worker starts."""

from __future__ import annotations

import sys
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.versions import check_version, installed_version, judge_version
from tandem_plugin.training.settings import check_settings, check_text_model
from tandem_plugin.training.unproven import Unproven
from tandem_verl.settings import allowed_unproven
from tandem_verl.soundness import check_learning
from tandem_verl.switch import MODES

__all__ = ["check_models", "check_policy", "check_run", "check_versions"]

_SPECULATIVE = ("speculative_config", "speculative_model", "num_speculative_tokens")


def check_versions(unproven: Unproven) -> list[str]:
    """The warnings of ``tandem doctor`` about verl's and vLLM's versions.

    Raises :class:`ConfigError` for a version with which nothing is started.
    """
    warnings = []
    for name in ("verl", "vllm"):
        found = _version(name)
        if found is None:
            continue
        verdict = judge_version(name, found, f"{name} {found}")
        if verdict.status == "problem" and "dev" in found:
            unproven.check("development_version", f"{verdict.message} {verdict.mend}.")
        elif warning := check_version(name, found):
            warnings.append(warning)
    return warnings


def _version(name: str) -> str | None:
    """What an imported module, which may be a checkout, says of itself; else what is installed."""
    return getattr(sys.modules.get(name), "__version__", None) or installed_version(name)


def check_run(config: Any, tandem: TandemConfig, unproven: Unproven | None = None) -> None:
    """Raise :class:`ConfigError` for the first setting of a run that does not go with tandem.

    config: verl's whole configuration. unproven: what the run allows, by default what ``tandem``
    says.
    """
    check_policy(config)
    rollout = config.actor_rollout_ref.rollout
    _check_rollout(rollout, config.actor_rollout_ref.model)
    _check_adapters(config.actor_rollout_ref.model)
    _check_reward_penalty(config.algorithm)
    check_learning(config, tandem.lambda_jun > 0, unproven or allowed_unproven(tandem))
    _check_trainer(config)
    check_settings(tandem)


def check_models(config: Any, tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` unless senior and junior are text models, as far as they say."""
    check_text_model("actor_rollout_ref.model.path", str(config.actor_rollout_ref.model.path))
    if tandem.junior:
        check_text_model("tandem.junior", tandem.junior)


def check_policy(config: Any) -> None:
    """Raise :class:`ConfigError` for verl's experimental trainers.

    ``fully_async_policy`` and ``one_step_off_policy`` begin and update in ways of their own, where
    no batch is checked. Only their configurations have ``async_training``, or a ``rollout`` at the
    top.
    """
    if config.get("async_training") is not None:
        raise ConfigError(
            "verl's experimental fully_async_policy (async_training=...) does not go with tandem: "
            "its trainer does not pass where batches are checked. Use verl.trainer.main_ppo with "
            "trainer.v1.trainer_mode=separate_async."
        )
    if config.get("rollout") is not None:
        raise ConfigError(
            "verl's experimental one_step_off_policy (rollout.nnodes=...) does not go with tandem: "
            "its trainer does not pass where batches are checked. Use verl.trainer.main_ppo with "
            "trainer.v1.trainer_mode=colocate_async or separate_async."
        )


def _check_rollout(rollout: Any, model: Any) -> None:
    if rollout.name != "vllm":
        raise ConfigError(
            f"actor_rollout_ref.rollout.name={rollout.name!r}: tandem runs inside vLLM. Set "
            "actor_rollout_ref.rollout.name=vllm."
        )
    engine = rollout.engine_kwargs.vllm
    sizes = {
        "actor_rollout_ref.rollout.pipeline_model_parallel_size": rollout.get(
            "pipeline_model_parallel_size"
        ),
        "actor_rollout_ref.rollout.engine_kwargs.vllm.pipeline_parallel_size": engine.get(
            "pipeline_parallel_size"
        ),
    }
    for name, size in sizes.items():
        if size is not None and int(size) > 1:
            raise ConfigError(
                f"{name}={size}: tandem does not run with pipeline parallelism, since a token's "
                f"author is chosen where both models end. Set {name}=1 and use tensor parallelism."
            )
    disaggregation = rollout.get("disaggregation")
    if disaggregation is not None and disaggregation.get("enabled"):
        raise ConfigError(
            "actor_rollout_ref.rollout.disaggregation.enabled=True: prefill in one engine and "
            "decoding in another does not go with tandem, since what connects them was not made "
            "for two models' caches in one engine. Set it to False."
        )
    if engine.get("kv_transfer_config") is not None:
        raise ConfigError(
            "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_transfer_config: connectors were not "
            "made for two models' caches in one engine. Leave it out."
        )
    for key in _SPECULATIVE:
        if engine.get(key) is not None:
            raise ConfigError(
                f"actor_rollout_ref.rollout.engine_kwargs.vllm.{key}={engine.get(key)!r}: draft "
                "tokens would have no author. Leave speculative decoding out."
            )
    for mtp in (rollout.get("mtp"), model.get("mtp")):
        if mtp is not None and mtp.get("enable") and mtp.get("enable_rollout"):
            raise ConfigError(
                "actor_rollout_ref.model.mtp.enable_rollout=True is speculative decoding: draft "
                "tokens would have no author. Set it to False."
            )


def _check_adapters(model: Any) -> None:
    lora = model.get("lora") or {}
    if lora.get("merge"):
        return  # verl's engine then gets whole weights
    given = {
        "lora_rank": int(model.get("lora_rank") or 0),
        "lora.rank": int(lora.get("rank") or 0),
        "lora_adapter_path": model.get("lora_adapter_path"),
        "lora.adapter_path": lora.get("adapter_path"),
    }
    for name, value in given.items():
        if value:
            raise ConfigError(
                f"actor_rollout_ref.model.{name}={value}: tandem's engine does not run LoRA "
                "adapters. Set actor_rollout_ref.model.lora.merge=True, with which verl trains an "
                "adapter and sends the engine merged weights, or merge it into the checkpoint and "
                "train that."
            )


def _check_reward_penalty(algorithm: Any) -> None:
    control = algorithm.get("kl_ctrl")
    if algorithm.get("use_kl_in_reward") and control is not None and control.type == "adaptive":
        raise ConfigError(
            "algorithm.kl_ctrl.type=adaptive with use_kl_in_reward does not go with tandem: the "
            "controller would follow a mean that counts responses without a token of the senior's. "
            "Set algorithm.kl_ctrl.type=fixed."
        )


def _check_trainer(config: Any) -> None:
    if not config.trainer.get("use_v1", True):
        return
    mode = config.trainer.v1.trainer_mode
    if mode not in MODES:
        raise ConfigError(
            f"trainer.v1.trainer_mode={mode} was not tested with tandem. Use one of: "
            f"{', '.join(MODES)}."
        )
    sync = config.actor_rollout_ref.rollout.get("checkpoint_engine") or {}
    if mode == "separate_async" and sync.get("backend") == "delta_sharded":
        raise ConfigError(
            "actor_rollout_ref.rollout.checkpoint_engine.backend=delta_sharded was not tested with "
            "tandem: it writes into the engine's weights without loading them. Use another one, "
            "such as nccl."
        )
