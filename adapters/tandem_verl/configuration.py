"""Turns verl's configuration with the one flag into one that names tandem's classes."""

from __future__ import annotations

import sys
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.engine.junior import is_seniors_checkpoint
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import missing_modules
from tandem_plugin.patching.subclasses import in_tandem
from tandem_plugin.patching.versions import running_version
from tandem_plugin.training import settings
from tandem_plugin.training.refusals import Unproven
from tandem_verl import agent_loop, server, trainer
from tandem_verl.refusals import allowed_unproven, check_run
from tandem_verl.switch import BYPASS_LOSS, OUR_BYPASS_LOSS, OUR_MODE, running_config

__all__ = [
    "EXTENDED",
    "MODULES",
    "check_models",
    "check_versions",
    "prepare",
    "read_the_base",
    "trainer_class",
]

EXTENDED = {
    "verl.experimental.agent_loop.agent_loop.AgentLoopManager": agent_loop.ManagerInTandem,
    "verl.experimental.agent_loop.agent_loop.AgentLoopWorker": agent_loop.WorkerInTandem,
    "verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMReplica": server.ReplicaInTandem,
    "verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMHttpServer": server.ServerInTandem,
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer": trainer.TrainerInTandem,
    "verl.trainer.ppo.v1.agent_loop_tq.AgentLoopManagerTQ": agent_loop.NumberingManager,
}
"""The classes of verl that have subclasses of ours, and with what."""

MODULES = (
    *dict.fromkeys(name.rpartition(".")[0] for name in EXTENDED),
    "verl.workers.rollout.replica",
    "verl.trainer.ppo.v1",
)
"""The modules of verl without which a run is refused."""


def prepare(config: Any) -> None:
    """Check a tandem run, and name tandem's classes in its configuration.

    config: verl's whole configuration. Raises :class:`ConfigError` for settings that are
    incompatible with tandem, and :class:`EngineError` if verl lacks a module whose classes are
    extended.
    """
    tandem = running_config(config, "A driver")
    unproven = allowed_unproven(tandem)
    for warning in check_versions(unproven):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    check_run(config, tandem, unproven)
    check_models(config, tandem)
    unproven.say()
    if missing := missing_modules(MODULES):
        raise EngineError("TP502", module=missing[0])
    read_the_base(config, tandem)
    policy_loss = config.actor_rollout_ref.actor.policy_loss
    if policy_loss.get("loss_mode") == BYPASS_LOSS:
        policy_loss.loss_mode = OUR_BYPASS_LOSS
    agent_loop.name_manager(config)
    config.trainer.v1.trainer_mode = OUR_MODE + config.trainer.v1.trainer_mode


def trainer_class(mode: type) -> Any:
    """The tandem subclass of the trainer of one of V1's modes."""
    return in_tandem(mode, trainer.TrainerInTandem)


def check_models(config: Any, tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` unless senior and junior are text models by their configs."""
    senior = str(config.actor_rollout_ref.model.path)
    settings.check_text_models(
        {"actor_rollout_ref.model.path": senior, "tandem.junior": tandem.juniors}
    )


def check_versions(unproven: Unproven) -> list[str]:
    """The warnings about verl's and vLLM's versions.

    Raises :class:`ConfigError` for a version with which nothing is started.
    """
    found = {name: running_version(name) for name in ("verl", "vllm")}
    name = "development_version" if "dev" in (found["verl"] or "") else ""
    return settings.check_versions(found, unproven, name)


def read_the_base(config: Any, tandem: TandemConfig) -> None:
    """Let the engine load a base model that also serves as the junior from the checkpoint.

    config: verl's whole configuration, which changes. By default, verl starts from dummy weights
    and sends the base once as full weights, which an engine rejects if they are also the junior's.
    """
    model, rollout = config.actor_rollout_ref.model, config.actor_rollout_ref.rollout
    path = str(model.path)
    is_base = any(is_seniors_checkpoint(one, path, None) for one in tandem.juniors or (path,))
    merged = (model.get("lora") or {}).get("merge")
    if model.get("lora_rank") and not merged and is_base and "dummy" in rollout.load_format:
        rollout.load_format = "auto"
