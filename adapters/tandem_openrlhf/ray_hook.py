"""How the adapter gets into every process of a run: by Ray's own two hooks.

``RAY_RUNTIME_ENV_HOOK`` names a function that ``ray.init`` calls in the driver, :func:`amend`; it
adds tandem's settings and a ``worker_process_setup_hook`` to the job's runtime environment, so that
Ray calls :func:`activate` in each of the job's worker processes before anything else runs there, on
a local Ray or a cluster. A worker in which that fails does not start.
"""

from __future__ import annotations

import json
from typing import Any

from tandem_openrlhf.settings import VARIABLE, tandem_config
from tandem_plugin.errors import ConfigError

__all__ = ["HOOK", "HOOK_VARIABLE", "activate", "amend"]

HOOK_VARIABLE = "RAY_RUNTIME_ENV_HOOK"
"""The environment variable in which Ray looks for the driver's hook."""

HOOK = "tandem_openrlhf.ray_hook.amend"
"""What it has to hold."""

_WORKER_HOOK = "worker_process_setup_hook"
_ACTIVATE = "tandem_openrlhf.ray_hook.activate"


def amend(runtime_env: dict[str, Any] | None) -> dict[str, Any] | None:
    """Turn tandem on in the driver and in the workers that the job will have.

    Returns the runtime environment unchanged where nothing asks for tandem. Raises
    :class:`ConfigError` for settings that are wrong or another hook in the same place.
    """
    config = tandem_config()
    if config is None:
        return runtime_env
    activate()
    amended = dict(runtime_env or {})
    other = amended.get(_WORKER_HOOK)
    if other not in (None, _ACTIVATE):
        raise ConfigError(
            f"The runtime environment has a {_WORKER_HOOK} of its own ({other}), and tandem needs "
            f"that place. Let it call {_ACTIVATE} as well, and leave {HOOK_VARIABLE} out."
        )
    amended["env_vars"] = {
        **(amended.get("env_vars") or {}),
        VARIABLE: json.dumps(config.settings()),
    }
    amended[_WORKER_HOOK] = _ACTIVATE
    return amended


def activate() -> None:
    """Put the adapter in place in this process; repeatable, and cheap where OpenRLHF is not used.

    Raises :class:`ConfigError` for a version of OpenRLHF that the adapter was not tested with.
    """
    from tandem_openrlhf import patches

    patches.apply()
