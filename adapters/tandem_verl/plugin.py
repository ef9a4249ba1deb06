"""The ``verl.plugins`` entry point: verl imports this module in every one of its processes.

verl ignores a plugin's import error, and the run would train without tandem. So this module needs
only the standard library, and imports the adapter when a tandem run begins.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from importlib.machinery import PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from tandem_verl.settings import FLAG, MODES, OUR_MODE, names_tandem, tandem_node


def activate() -> None:
    """Wait for the three modules of verl in which something is wrapped or registered."""
    after_import = _after_import()
    after_import("verl.utils.config", prepare_runs)
    after_import("verl.trainer.main_ppo", check_runners)
    after_import("verl.trainer.ppo.v1", register_trainers)


def prepare_runs(module: ModuleType) -> None:
    """Check a tandem run's settings where verl checks its own, and name our classes in them.

    Touches: ``verl.utils.config.validate_config``, in verl 0.9. Why: ``main`` calls it with the
    whole configuration, before Ray is started. Without it, tandem engines do not start. Goes when:
    verl offers plugins a hook on the configuration.
    """
    _check_first(module, "validate_config", lambda config, *_, **__: _adapter().prepare(config))


def check_runners(module: ModuleType) -> None:
    """Reject a tandem run that a different main of verl's starts, before Ray is started.

    Touches: ``verl.trainer.main_ppo.run_ppo``, in verl 0.9, which all of verl's mains call with the
    whole configuration. Why: not all of them call ``validate_config``, and the trainers of
    ``fully_async_policy`` and ``one_step_off_policy`` cannot be extended. Goes when: they can.
    """

    def check(config: Any, task_runner_class: Any, *_: Any, **__: Any) -> None:
        supported = getattr(module, "TaskRunnerV1", None)
        _adapter().check_runner(config, task_runner_class, supported)

    _check_first(module, "run_ppo", check)


def _check_first(module: ModuleType, name: str, check: Callable[..., None]) -> None:
    """Let a function of verl's call ``check`` first, if its configuration is in tandem."""
    original: Callable[..., Any] | None = getattr(module, name, None)
    if original is None or getattr(original, "_tandem_wrapped", False):
        return

    @functools.wraps(original)
    def checked(config: Any, *arguments: Any, **options: Any) -> Any:
        if _in_tandem(config):
            check(config, *arguments, **options)
        return original(config, *arguments, **options)

    checked._tandem_wrapped = True  # type: ignore[attr-defined]
    setattr(module, name, checked)


def register_trainers(module: ModuleType) -> None:
    """Register a tandem trainer for each mode of trainer V1; module: ``verl.trainer.ppo.v1``."""
    for mode in MODES:
        module.register_trainer(OUR_MODE + mode)(_trainer_in_tandem(module, mode))


def _trainer_in_tandem(module: ModuleType, mode: str) -> type:
    def __new__(cls: type, *args: Any, **options: Any) -> Any:  # noqa: N807
        return _adapter().trainer_class(module.get_trainer_cls(mode))(*args, **options)

    return type(f"TandemTrainer_{mode}", (module.PPOTrainer,), {"__new__": __new__})


def _in_tandem(config: Any) -> bool:
    """Whether a run is in tandem, after a check for settings of tandem that it would ignore."""
    try:
        misplaced = importlib.import_module("tandem_verl.misplaced")
    except Exception as error:
        if not names_tandem(config):
            return False
        raise _refusal(error) from error
    misplaced.check_places(config)
    return tandem_node(config) is not None


def _adapter() -> Any:
    """The adapter itself; an import error becomes the error of the tandem run."""
    try:
        return importlib.import_module("tandem_verl.configuration")
    except Exception as error:
        raise _refusal(error) from error


def _refusal(error: BaseException) -> Exception:
    return RuntimeError(
        f"The configuration enables tandem ({FLAG}), but the verl adapter of tandem-plugin could "
        f"not be activated: {type(error).__name__}: {error}. Fix this (`tandem doctor` shows "
        "more), or remove the tandem node to train without tandem."
    )


def _after_import() -> Callable[[str, Callable[[ModuleType], None]], None]:
    """The core's ``after_import``, loaded from its file if the core cannot be imported.

    Like this module, that file needs only the standard library.
    """
    name = "tandem_plugin.patching.after_import"
    try:
        module = importlib.import_module(name)
    except Exception:
        core = PathFinder.find_spec("tandem_plugin")
        if core is None or not core.submodule_search_locations:
            raise
        file = os.path.join(core.submodule_search_locations[0], "patching", "after_import.py")
        module = ModuleType(name)
        SourceFileLoader(name, file).exec_module(module)
    waiting: Callable[[str, Callable[[ModuleType], None]], None] = module.after_import
    return waiting


activate()
