"""Prepares the worker processes of a Ray job for tandem, and verifies that each is prepared.

Ray calls the driver's ``worker_process_setup_hook`` first in each of the job's worker processes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.in_place import Framework
from tandem_plugin.patching.subclasses import Mixin, Patch
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import VARIABLE, running_config, tandem_config

FAILURE = "TANDEM_NOT_READY"
"""The environment variable with the reason why a worker process could not be prepared."""


@dataclass(frozen=True, slots=True)
class RayJob(Framework):
    """A framework whose processes are workers of a Ray job; patches: as in :func:`worker_hook`."""

    patches: str = ""

    def start(self, config: TandemConfig) -> None:
        """Prepare this process, and the workers of the job that it will start; repeatable.

        Touches: ``ray.init`` (Ray 2.55 to 2.60), which the command calls with a runtime
        environment. Goes when: trainers take a runtime environment from their caller.
        """
        settings = config.settings()
        os.environ[VARIABLE] = json.dumps(settings)
        _init_in_tandem(self, worker_hook(settings, self.patches))

    def actor(self, name: str, ours: type[Mixin] | None = None) -> Patch:
        """The patch that puts ``ours`` before an actor's class and checks its worker process.

        Touches: ``__init__`` of the class of this name. Why: a worker that lost the hook would
        train on the junior's tokens. Goes when: Ray tells a driver which workers called their
        setup hook.
        """
        return _confirmed_actor(self, name, ours)


def _init_in_tandem(framework: Framework, hook: Callable[[], None]) -> None:
    import ray

    def init(
        original: Callable[..., Any],
        *args: Any,
        runtime_env: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        framework.check()
        environment = {**(runtime_env or {}), "worker_process_setup_hook": hook}
        return original(*args, runtime_env=environment, **options)

    wrap_once(ray, "init", init)


def worker_hook(settings: Mapping[str, Any], patches: str) -> Callable[[], None]:
    """The hook that prepares a worker process; it is pickled by value.

    patches: the adapter's module whose ``apply()`` applies its patches. The hook never raises,
    because Ray would start workers without end; it leaves the error for the actor.
    """
    text, variable, note = json.dumps(settings), VARIABLE, FAILURE

    def make_ready_for_tandem() -> None:
        os.environ[variable] = text
        try:
            importlib.import_module(patches).apply()
        except Exception as error:
            os.environ[note] = f"{type(error).__name__}: {error}"

    return make_ready_for_tandem


def _confirmed_actor(framework: Framework, name: str, ours: type[Mixin] | None = None) -> Patch:
    def patch(module: ModuleType) -> None:
        if ours is not None:
            ours.tandem_in_place_of(name)(module)
        kind = getattr(module, name).__ray_metadata__.modified_class
        settings = running_config().settings()

        def init(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
            check_worker(framework, name, settings)
            return original(*args, **options)

        async def init_async(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
            check_worker(framework, name, settings)
            return await original(*args, **options)

        is_async = inspect.iscoroutinefunction(kind.__init__)
        wrap_once(kind, "__init__", init_async if is_async else init)

    return patch


def check_worker(framework: Framework, actor: str, settings: Mapping[str, Any]) -> None:
    """Raise :class:`EngineError` unless this worker process was prepared for the driver's run.

    actor: the name of the actor class that is about to begin here. settings: the driver's.
    """
    if failure := os.environ.get(FAILURE):
        raise EngineError("worker-not-prepared", actor=actor, failure=failure.rstrip("."))
    config = tandem_config() if framework.is_in_place else None
    if config is None or config.settings() != settings:
        why = "was not prepared for it" if config is None else "has different settings"
        raise EngineError("worker-setup-hook-not-called", actor=actor, why=why)
    framework.check()
