"""From verl's configuration with the one flag to one in which our classes are named."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.patching.after_import import missing_modules
from tandem_verl.refusals import check_models, check_run, check_versions
from tandem_verl.settings import allowed_unproven, tandem_config
from tandem_verl.switch import OUR_MODE, tandem_node

__all__ = ["MANAGER", "MODULES_V0", "MODULES_V1", "prepare", "restore_mode", "users_manager"]

MANAGER = "tandem_verl.manager.TandemAgentLoopManager"
"""The agent-loop manager that every run in tandem is given."""

_MANAGER_KEY = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
_USERS_MANAGER_KEY = "actor_rollout_ref.rollout.engine_kwargs.tandem.agent_loop_manager_class"
"""Where the user's own is kept: verl reads of this mapping only what is its engine's."""

_MODE_KEY = "trainer.v1.trainer_mode"

_MODULES = (
    "verl.experimental.agent_loop.agent_loop",
    "verl.workers.rollout.replica",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
)
MODULES_V1 = (
    *_MODULES,
    "verl.trainer.ppo.v1",
    "verl.trainer.ppo.v1.trainer_base",
    "verl.trainer.ppo.v1.agent_loop_tq",
)
MODULES_V0 = (*_MODULES, "verl.trainer.ppo.ray_trainer")


def prepare(config: Any) -> None:
    """Check a run that asks for tandem, and name our classes in its configuration; repeatable.

    config: verl's whole configuration. One that does not ask for tandem is left as it is. Raises
    :class:`ConfigError` for settings that do not go with tandem, and :class:`EngineError` for a
    verl without a module whose classes are extended.
    """
    tandem = tandem_config(config)
    if tandem is None:
        return
    unproven = allowed_unproven(tandem)
    for warning in check_versions(unproven):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    check_run(config, tandem, unproven)
    check_models(config, tandem)
    unproven.say()
    use_v1 = config.trainer.get("use_v1", True)
    _check_modules(MODULES_V1 if use_v1 else MODULES_V0)
    _set_manager(config)
    if use_v1:
        _set(config, _MODE_KEY, OUR_MODE + config.trainer.v1.trainer_mode)
    else:
        # Imported for a run of the legacy trainer alone.
        importlib.import_module("tandem_verl.trainer_v0").put_in_place()


def restore_mode(config: Any) -> None:
    """Give the trainer's mode the name back that verl compares it to, in the trainer's process.

    Raises :class:`ConfigError` for a mode of ours that :func:`prepare` did not choose.
    """
    mode = config.trainer.v1.trainer_mode
    if tandem_node(config) is None or not mode.startswith(OUR_MODE):
        raise ConfigError(
            f"trainer.v1.trainer_mode={mode} is what tandem makes of a mode in a run that asks for "
            "it. Set the mode's own name, such as sync, and ask for tandem by its flag."
        )
    _set(config, _MODE_KEY, mode.removeprefix(OUR_MODE))


def users_manager(config: Any) -> str | None:
    """The agent-loop manager class that the user named; None for verl's own."""
    from omegaconf import OmegaConf

    name = OmegaConf.select(config, _USERS_MANAGER_KEY)
    return None if name is None else str(name)


def _set_manager(config: Any) -> None:
    from omegaconf import OmegaConf

    name = OmegaConf.select(config, _MANAGER_KEY)
    if name == MANAGER:
        return
    if name:
        _set(config, _USERS_MANAGER_KEY, name)
    _set(config, _MANAGER_KEY, MANAGER)


def _set(config: Any, key: str, value: str) -> None:
    from omegaconf import OmegaConf

    OmegaConf.update(config, key, value, force_add=True)


def _check_modules(names: tuple[str, ...]) -> None:
    if missing := missing_modules(names):
        raise EngineError(
            f"This verl has no module {missing[0]}, which tandem has to extend: it was moved or "
            'renamed. Install verl 0.9.1: pip install "tandem-plugin[verl]".'
        )
