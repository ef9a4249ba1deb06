"""How the adapter gets into every process of a run: by the runtime environment of its Ray job.

How workers are made ready, and prove it, is in :mod:`tandem_plugin.training.ray_workers`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tandem_openrlhf import patches
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import EngineError
from tandem_plugin.patching.in_place import check_in_place
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.ray_workers import amended

__all__ = ["start_jobs_in_tandem"]

_DRIVERS = ("openrlhf.trainer.ray.vllm_engine", "openrlhf.trainer.ray.ppo_actor")
"""What OpenRLHF's command has imported when it starts Ray (0.11.2)."""


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
        _check_driver()
        environment = amended(runtime_env, config.settings(), patches.__name__)
        return original(*args, runtime_env=environment, **more)

    wrap_once(ray, "init", init)


def _check_driver() -> None:
    """Raise :class:`EngineError` unless the driver's part of OpenRLHF is there, and patched."""
    check_in_place(patches.FRAMEWORK)
    absent = [name for name in _DRIVERS if name not in sys.modules]
    if absent:
        raise EngineError(
            f"OpenRLHF's command is about to start Ray without {absent[0]}, which tandem has to "
            f"change: this OpenRLHF is not what the adapter was tested with. {patches.MEND}"
        )
