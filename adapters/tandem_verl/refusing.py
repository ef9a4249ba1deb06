"""The last resort: what stops a run that asks for tandem where the adapter cannot be put in place.

Whatever next starts such a run, or its trainer, raises. Agent-loop workers and servers need none of
it: they are classes of ours, by name, and where those cannot be imported verl cannot start them.
Nothing imported here can fail.
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

from tandem_verl.switch import FLAG, MODES, OUR_MODE, tandem_node

__all__ = ["close_the_trainers", "refuse"]

logger = logging.getLogger(__name__)


def refuse(error: BaseException) -> None:
    """From now on in this process, raise for any run that asks for tandem, naming ``error``."""
    logger.warning("The tandem adapter is not active: %s: %s", type(error).__name__, error)
    after_import = _after_import()
    after_import("verl.utils.config", functools.partial(_close_the_start, error))
    after_import("verl.trainer.ppo.v1", functools.partial(close_the_trainers, error))


def _close_the_start(error: BaseException, module: ModuleType) -> None:
    original: Callable[..., Any] = module.validate_config

    @functools.wraps(original)
    def validate_config(config: Any, *rest: Any, **more: Any) -> Any:
        if tandem_node(config) is not None:
            raise _refusal(error) from error
        return original(config, *rest, **more)

    module.validate_config = validate_config  # type: ignore[attr-defined]


def close_the_trainers(error: BaseException, module: ModuleType) -> None:
    """Let the trainers' names of ours, which only a run in tandem asks for, raise ``error``.

    module: ``verl.trainer.ppo.v1``.
    """

    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        raise _refusal(error) from error

    refused = type("RefusedTrainer", (module.PPOTrainer,), {"__new__": __new__})
    for mode in MODES:
        module.register_trainer(OUR_MODE + mode)(refused)


def _refusal(error: BaseException) -> Exception:
    return _error_type()(
        f"The configuration asks for tandem ({FLAG}), but the verl adapter of tandem-plugin could "
        f"not be put in place: {type(error).__name__}: {error}. Mend that (`tandem doctor` says "
        "more), or remove the tandem node to train without tandem."
    )


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
