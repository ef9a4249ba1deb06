"""How the adapter gets into every process of a run: by the runtime environment of its Ray job.

In the driver, ``ray.init`` is given a ``worker_process_setup_hook``, which Ray calls in each of the
job's worker processes before anything else runs there, on a Ray of the run's own or a cluster. What
else amends a runtime environment (``uv run``, ``RAY_RUNTIME_ENV_HOOK``, ``ray job submit``) does so
as ever. Should the hook be lost on that way, the actors say so: see
:mod:`tandem_openrlhf.presence`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from tandem_openrlhf import patches
from tandem_openrlhf.presence import FAILURE, check_driver
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import VARIABLE

__all__ = ["amended", "start_jobs_in_tandem", "worker_hook"]

_WORKER_HOOK = "worker_process_setup_hook"


def start_jobs_in_tandem(config: TandemConfig) -> None:
    """Put the adapter in place in this driver, and in the workers of the job that it will start.

    Touches: ``ray.init`` (Ray 2.55 to 2.60), which OpenRLHF calls with a runtime environment of its
    own. Goes when: OpenRLHF takes a runtime environment from its caller. Raises
    :class:`ConfigError` or :class:`EngineError` where the adapter cannot be put in place.
    """
    import ray

    patches.apply()

    def init(
        original: Callable[..., Any],
        *args: Any,
        runtime_env: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        check_driver()
        return original(*args, runtime_env=amended(runtime_env, config), **more)

    wrap_once(ray, "init", init)


def amended(runtime_env: Mapping[str, Any] | None, config: TandemConfig) -> dict[str, Any]:
    """A runtime environment whose workers are made ready for tandem, and else as it was.

    Raises :class:`ConfigError` for one with another hook in the same place.
    """
    other = (runtime_env or {}).get(_WORKER_HOOK)
    if other is not None:
        raise ConfigError(
            f"The runtime environment has a {_WORKER_HOOK} of its own ({other}), and tandem needs "
            "that place: Ray calls only one. Leave it out, and do in the agent or reward file what "
            "it does."
        )
    return {**(runtime_env or {}), _WORKER_HOOK: worker_hook(config.settings())}


def worker_hook(settings: Mapping[str, Any]) -> Callable[[], None]:
    """What makes a worker process ready: it is sent to the workers as it is, settings included.

    It never raises, for Ray would start one worker after the other: it leaves a note of what is
    wrong for the actor that begins there. It imports for itself, so that a node without the package
    can read it.
    """
    text, variable, note = json.dumps(settings), VARIABLE, FAILURE

    def make_ready_for_tandem() -> None:
        os.environ[variable] = text
        try:
            from tandem_openrlhf import patches

            patches.apply()
        except Exception as error:
            os.environ[note] = f"{type(error).__name__}: {error}"

    return make_ready_for_tandem
