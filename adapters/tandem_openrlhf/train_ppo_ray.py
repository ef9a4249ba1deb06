"""The command ``python -m tandem_openrlhf.train_ppo_ray``: OpenRLHF's own, in tandem.

::

    python -m tandem_openrlhf.train_ppo_ray --tandem.schedule word <OpenRLHF's arguments>

It prepares this process and the workers of its Ray job, checks the arguments, and runs OpenRLHF's
``openrlhf.cli.train_ppo_ray`` with every other argument unchanged.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Sequence

from tandem_openrlhf import patches
from tandem_openrlhf.ray_workers import start_jobs_in_tandem
from tandem_openrlhf.refusals import ARGUMENTS, check_run
from tandem_openrlhf.settings import flags_of_command
from tandem_plugin.engine.local_models import check_before_start
from tandem_plugin.errors import TandemError
from tandem_plugin.training.command import VARIABLE, running_config, settings_of_command
from tandem_plugin.training.refusals import check_settings
from tandem_plugin.training.sampling import warn_of_changed_sampling

_OPENRLHF = "openrlhf.cli.train_ppo_ray"


def prepare(arguments: Sequence[str]) -> list[str]:
    """Enable tandem for this process and the job it starts; return OpenRLHF's arguments.

    Raises :class:`ConfigError` for invalid or missing settings, and :class:`EngineError` if the
    adapter cannot be activated.
    """
    config, others = settings_of_command(arguments, f"python -m {_OPENRLHF}")
    check_settings(config)
    os.environ[VARIABLE] = json.dumps(config.settings())
    patches.apply()
    start_jobs_in_tandem(patches.FRAMEWORK, patches.__name__)
    return others


def main(arguments: Sequence[str]) -> None:
    """Run OpenRLHF's trainer in tandem."""
    try:
        others = prepare(arguments)
        given, config = flags_of_command(others, ARGUMENTS), running_config()
        if not given("--help"):
            check_run(given, config).log_warnings()
            # OpenRLHF has no arguments of the engine that tandem rejects.
            check_before_start(config, given("--actor.model_name_or_path"), lambda _: None)
            warn_of_changed_sampling({"--rollout.top_p": given("--rollout.top_p")})
    except TandemError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sys.argv = [_OPENRLHF, *others]
    runpy.run_module(_OPENRLHF, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
