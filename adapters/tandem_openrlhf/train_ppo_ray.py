"""The command ``python -m tandem_openrlhf.train_ppo_ray``: OpenRLHF's own, in tandem.

::

    python -m tandem_openrlhf.train_ppo_ray --tandem.schedule word <OpenRLHF's arguments>

It prepares this process and the workers of its Ray job, checks the arguments, and runs OpenRLHF's
``openrlhf.cli.train_ppo_ray`` with every other argument unchanged.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from tandem_openrlhf import patches
from tandem_openrlhf.settings import flags_of_command
from tandem_openrlhf.start import ARGUMENTS, OpenRLHFCommand
from tandem_plugin.config import TandemConfig
from tandem_plugin.training.command import settings_of_command

_OPENRLHF = "openrlhf.cli.train_ppo_ray"


def prepare(config: TandemConfig) -> None:
    """Enable tandem for this process and for the workers of the Ray job that it starts.

    Raises :class:`EngineError` if the adapter cannot be activated.
    """
    patches.put(config)
    patches.JOB.start(config)


def main(arguments: Sequence[str]) -> None:
    """Run OpenRLHF's trainer in tandem."""
    with OpenRLHFCommand.as_command():
        config, trainer_arguments, _ = settings_of_command(arguments, f"python -m {_OPENRLHF}")
        start = OpenRLHFCommand.begin(config)
        flags = flags_of_command(trainer_arguments, ARGUMENTS)
        if not flags["--help"]:
            start.check(OpenRLHFCommand.of(flags))
        prepare(config)
    sys.argv = [_OPENRLHF, *trainer_arguments]
    runpy.run_module(_OPENRLHF, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
