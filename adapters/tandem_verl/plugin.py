"""The ``verl.plugins`` entry point: verl imports this module in every one of its processes.

verl logs a plugin's import error at debug level and goes on without it. A run that asked for
tandem would then train as if it had not, so nothing imported here can fail, and when the adapter
cannot be put in place it leaves a refusal instead: whatever next starts a run, or a part of one,
that asks for tandem is stopped with the error.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from tandem_verl.switch import FLAG, tandem_node

__all__ = ["activate", "refuse"]

logger = logging.getLogger(__name__)

_ENTRANCES: dict[str, tuple[str | None, str]] = {
    "verl.utils.config": (None, "validate_config"),
    "verl.trainer.ppo.v1.trainer_base": ("PPOTrainer", "__init__"),
    "verl.trainer.ppo.ray_trainer": ("RayPPOTrainer", "__init__"),
    "verl.experimental.agent_loop.agent_loop": ("AgentLoopWorker", "__init__"),
    "verl.workers.rollout.vllm_rollout.vllm_async_server": ("vLLMHttpServer", "__init__"),
}
"""Where runs and their parts begin, each with the configuration among its arguments (verl 0.9)."""


def activate() -> None:
    """Put the adapter in place, or leave a refusal; never raises."""
    try:
        from tandem_verl import patches

        patches.apply()
    except Exception as error:
        refuse(error)


def refuse(error: BaseException) -> None:
    """From now on in this process, raise for any run that asks for tandem, naming ``error``."""
    logger.warning("The tandem adapter is not active: %s: %s", type(error).__name__, error)
    after_import = _after_import()
    for module, entrance in _ENTRANCES.items():
        after_import(module, functools.partial(_close, entrance, error))


def _close(entrance: tuple[str | None, str], error: BaseException, module: ModuleType) -> None:
    owner_name, name = entrance
    owner: Any = module if owner_name is None else getattr(module, owner_name, None)
    original: Callable[..., Any] | None = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def closed(*args: Any, **kwargs: Any) -> Any:
        candidates = [kwargs.get("config"), *args[:2]]  # the configuration comes first or second
        if any(tandem_node(candidate) is not None for candidate in candidates):
            raise _error_type()(
                f"The configuration asks for tandem ({FLAG}), but the verl adapter of "
                f"tandem-plugin could not be put in place: {type(error).__name__}: {error}. "
                "Mend that (`tandem doctor` says more), or remove the tandem node to train "
                "without tandem."
            ) from error
        return original(*args, **kwargs)

    setattr(owner, name, closed)


def _after_import() -> Callable[[str, Callable[[ModuleType], None]], None]:
    """The core's ``after_import``, from its file alone where the core cannot be imported.

    That file stands on the standard library, as this one does.
    """
    name = "tandem_plugin.patching.after_import"
    try:
        module = importlib.import_module(name)
    except Exception:
        core = PathFinder.find_spec("tandem_plugin")
        if core is None or not core.submodule_search_locations:
            raise
        file = os.path.join(core.submodule_search_locations[0], "patching", "after_import.py")
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    waiting: Callable[[str, Callable[[ModuleType], None]], None] = module.after_import
    return waiting


def _error_type() -> type[Exception]:
    try:
        from tandem_plugin.errors import EngineError
    except Exception:
        return RuntimeError
    return EngineError


activate()
