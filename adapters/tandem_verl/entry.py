"""What is put in place in each of verl's processes: one wrapped function, and trainers by name.

Everything else is a class of ours that :mod:`~tandem_verl.configuration` names in the run's
configuration, or that such a class brings with it. Modules are waited for, so that a process that
never imports them pays nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import
from tandem_plugin.patching.wrapping import wrap_once
from tandem_verl import agent_worker, manager, server, trainer_v1
from tandem_verl.classes import in_tandem
from tandem_verl.configuration import prepare
from tandem_verl.refusing import close_the_trainers, refuse
from tandem_verl.switch import MODES, OUR_MODE

__all__ = ["EXTENDED", "PATCHED", "put_in_place"]

PATCHED = ("verl.utils.config.validate_config",)
"""The symbols of verl that a run of trainer V1 finds changed. The legacy trainer's are in
:data:`tandem_verl.trainer_v0.PATCHED`."""

EXTENDED = {
    "verl.trainer.ppo.v1.trainer_base.PPOTrainer": trainer_v1.TrainerInTandem,
    "verl.trainer.ppo.v1.agent_loop_tq.AgentLoopManagerTQ": manager.NumberingManager,
    "verl.experimental.agent_loop.agent_loop.AgentLoopManager": manager.ManagerInTandem,
    "verl.experimental.agent_loop.agent_loop.AgentLoopWorker": agent_worker.WorkerInTandem,
    "verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMReplica": server.ReplicaInTandem,
    "verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMHttpServer": server.ServerInTandem,
}
"""The classes of verl that have subclasses of ours, and with what."""


def put_in_place() -> None:
    """Wait for what is wrapped and registered, or do it now where it was imported; repeatable."""
    after_import("verl.utils.config", functools.partial(_guarded, prepare_the_run))
    after_import("verl.trainer.ppo.v1", register_trainers)


def _guarded(patch: Callable[[ModuleType], None], module: ModuleType) -> None:
    """A hook that moved must stop tandem runs, and only those."""
    try:
        patch(module)
    except Exception as error:
        refuse(error)


def prepare_the_run(module: ModuleType) -> None:
    """Check a tandem run's settings where verl checks its own, and name our classes in them.

    Touches: ``verl.utils.config.validate_config``, in verl 0.9. Why: both trainers call it with the
    whole configuration, ``main`` before Ray is started and the legacy trainer in its own process
    once more. Goes when: verl offers plugins a hook on the configuration.
    """

    def validate_config(original: Callable[..., Any], config: Any, *rest: Any, **more: Any) -> Any:
        prepare(config)
        return original(config, *rest, **more)

    wrap_once(module, "validate_config", validate_config)


def register_trainers(module: ModuleType) -> None:
    """Register a trainer of ours for each mode of trainer V1, under a name of its own.

    module: ``verl.trainer.ppo.v1``. Where one cannot be made, its name stands for the reason.
    """
    try:
        ours = {
            mode: in_tandem(module.get_trainer_cls(mode), trainer_v1.TrainerInTandem)
            for mode in MODES
        }
    except Exception as error:
        close_the_trainers(error, module)
        return
    for mode, trainer in ours.items():
        module.register_trainer(OUR_MODE + mode)(trainer)
