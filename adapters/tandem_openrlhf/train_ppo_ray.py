"""The command ``python -m tandem_openrlhf.train_ppo_ray``: OpenRLHF's own, in tandem.

::

    python -m tandem_openrlhf.train_ppo_ray --tandem.schedule word <OpenRLHF's arguments>

It makes this process, and the workers of the Ray job that will be started in it, ready for tandem
(:mod:`tandem_plugin.training.ray_workers`), refuses what does not go with it
(:mod:`tandem_openrlhf.refusals`), and then runs OpenRLHF's ``openrlhf.cli.train_ppo_ray`` with
every other argument as it was given.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem_openrlhf import patches
from tandem_openrlhf.refusals import check_models, check_run, check_versions, of_command
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError, EngineError, TandemError
from tandem_plugin.patching.in_place import check_in_place
from tandem_plugin.patching.wrapping import wrap_once
from tandem_plugin.training.command import (
    PREFIX,
    VARIABLE,
    environment_settings,
    running_config,
    split_arguments,
)
from tandem_plugin.training.ray_workers import amended
from tandem_plugin.training.settings import check_settings

__all__ = ["main", "prepare"]

_OPENRLHF = "openrlhf.cli.train_ppo_ray"

_DRIVERS = ("openrlhf.trainer.ray.vllm_engine", "openrlhf.trainer.ray.ppo_actor")
"""What OpenRLHF's command has imported when it starts Ray (0.11.2)."""


def prepare(arguments: Sequence[str]) -> list[str]:
    """Turn tandem on for this process and the job it starts; return OpenRLHF's arguments.

    Raises :class:`ConfigError` for settings that are wrong, or where there are none, and
    :class:`EngineError` where the adapter cannot be put in place.
    """
    flags, others = split_arguments(arguments)
    given = environment_settings()
    if given is None and not flags:
        raise ConfigError(
            f"Nothing says how to train in tandem. Give {PREFIX}schedule word, or set {VARIABLE}; "
            f"for a run without tandem use python -m {_OPENRLHF}."
        )
    config = TandemConfig.from_mapping({**(given or {}), **flags})
    for warning in check_versions(config):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    check_settings(config)
    os.environ[VARIABLE] = json.dumps(config.settings())
    patches.apply()
    _start_jobs_in_tandem(config)
    return others


def _start_jobs_in_tandem(config: TandemConfig) -> None:
    """Let the workers of the job that this process will start be made ready.

    Touches: ``ray.init`` (Ray 2.55 to 2.60), which OpenRLHF calls with a runtime environment of its
    own. Goes when: OpenRLHF takes a runtime environment from its caller.
    """
    import ray

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


def main(arguments: Sequence[str]) -> None:
    """Run OpenRLHF's trainer in tandem."""
    try:
        others = prepare(arguments)
        given, config = of_command(others), running_config()
        if not given("--help"):
            check_run(given, config).say()
            check_models(given, config)
    except TandemError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.argv = [_OPENRLHF, *others]
    runpy.run_module(_OPENRLHF, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
