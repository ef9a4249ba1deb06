"""The proof that tandem reached every process of a run, without which nothing is begun there."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.in_place import check_in_place, is_in_place
from tandem_plugin.patching.subclasses import Patch, in_place_of
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import running_config, tandem_config

__all__ = [
    "FAILURE",
    "FRAMEWORK",
    "MEND",
    "actor_in_tandem",
    "check_driver",
    "check_part",
    "check_worker",
]

FRAMEWORK = "OpenRLHF"
"""As :mod:`tandem_plugin.patching.in_place` knows it."""

FAILURE = "TANDEM_NOT_READY"
"""The environment variable in which a worker process notes why it could not be made ready."""

MEND = 'Install OpenRLHF 0.11.2: pip install "openrlhf==0.11.2".'

_DRIVERS = ("openrlhf.trainer.ray.vllm_engine", "openrlhf.trainer.ray.ppo_actor")
"""What OpenRLHF's command has imported when it starts Ray (0.11.2)."""


def check_driver() -> None:
    """Raise :class:`EngineError` unless the driver's part of OpenRLHF is there, and patched."""
    check_in_place(FRAMEWORK)
    absent = [name for name in _DRIVERS if name not in sys.modules]
    if absent:
        raise EngineError(
            f"OpenRLHF's command is about to start Ray without {absent[0]}, which tandem has to "
            f"change: this OpenRLHF is not what the adapter was tested with. {MEND}"
        )


def actor_in_tandem(name: str, ours: type = object) -> Patch:
    """Put ``ours`` before a Ray actor's class, and let the actor begin only where all is ready.

    Touches: ``__init__`` of the class behind this name, with which the driver sends each actor the
    check of its worker process. Why: what is taken out of a job's runtime environment, no worker
    misses, and one without patches trains on the junior's tokens. Goes when: Ray tells a driver
    which of its workers called their setup hook.
    """

    def patch(module: ModuleType) -> None:
        in_place_of(name, ours)(module)
        kind = getattr(module, name).__ray_metadata__.modified_class
        settings = running_config().settings()

        def init(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
            check_worker(name, settings)
            return original(*args, **more)

        async def init_engine(original: Callable[..., Any], *args: Any, **more: Any) -> Any:
            check_worker(name, settings)
            return await original(*args, **more)

        is_async = inspect.iscoroutinefunction(kind.__init__)
        wrap_once(kind, "__init__", init_engine if is_async else init)

    return patch


def check_part(part: Any, ours: type) -> None:
    """Raise :class:`EngineError` for a part of a trainer that was not made of ``ours``."""
    if not isinstance(part, ours):
        kind = f"{type(part).__module__}.{type(part).__qualname__}"
        raise EngineError(
            f"The run asks for tandem, but {kind} is in the place of tandem's: something in "
            "the trainer's process put it there. Remove it, or derive it from the class that "
            "it replaces. Nothing was trained."
        )


def check_worker(actor: str, settings: Mapping[str, Any]) -> None:
    """Raise :class:`EngineError` unless this worker process was made ready for the driver's run.

    actor: the name of the actor class that is about to begin here. settings: the driver's.
    """
    if failure := os.environ.get(FAILURE):
        raise EngineError(
            f"The run asks for tandem, but the worker process of {actor} could not be made ready: "
            f"{failure.rstrip('.')}. Nothing was generated or trained."
        )
    config = tandem_config() if is_in_place(FRAMEWORK) else None
    if config is None or config.settings() != settings:
        why = "was not made ready for it" if config is None else "has other settings"
        raise EngineError(
            f"The run asks for tandem, but the worker process of {actor} {why}: Ray did not call "
            "the job's worker_process_setup_hook there. What amends the job's runtime environment "
            "(RAY_RUNTIME_ENV_HOOK, or one of the actor's own) must keep that entry. Nothing was "
            "generated or trained."
        )
    check_in_place(FRAMEWORK)
