"""The command ``python -m tandem_openrlhf.train_ppo_ray``: OpenRLHF's own, in tandem.

::

    python -m tandem_openrlhf.train_ppo_ray --tandem.schedule word <OpenRLHF's arguments>

It makes this process, and the Ray job that will be started in it, ready for tandem
(:mod:`tandem_openrlhf.ray_job`), refuses what does not go with it
(:mod:`tandem_openrlhf.refusals`), and then runs OpenRLHF's ``openrlhf.cli.train_ppo_ray`` with
every other argument as it was given.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Sequence

from tandem_openrlhf.ray_job import start_jobs_in_tandem
from tandem_openrlhf.refusals import check_models, check_run, check_versions, of_command
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError, TandemError
from tandem_plugin.training.command import (
    PREFIX,
    VARIABLE,
    environment_settings,
    running_config,
    split_arguments,
)
from tandem_plugin.training.settings import check_settings

__all__ = ["main", "prepare"]

_OPENRLHF = "openrlhf.cli.train_ppo_ray"


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
    start_jobs_in_tandem(config)
    return others


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
