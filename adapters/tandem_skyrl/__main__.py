"""The command ``python -m tandem_skyrl``: SkyRL's ``main_base`` in tandem.

::

    python -m tandem_skyrl --tandem.schedule word <SkyRL's settings>

Also where SkyRL's own command looks for another entry point:
``trainer.override_entrypoint=tandem_skyrl.__main__``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tandem_plugin.errors import ConfigError, TandemError
from tandem_plugin.patching.versions import running_version
from tandem_plugin.training.command import settings_of_command

if TYPE_CHECKING:
    from tandem_skyrl.experiment import TandemExp

_PLAIN = "skyrl.train.entrypoints.main_base"
_ENTRY = "trainer.override_entrypoint="


def main(experiment: type[TandemExp] | None = None) -> None:
    """Run SkyRL in tandem with the settings of the command line; experiment: one's own."""
    try:
        if running_version("skyrl") is None:
            raise ConfigError("trainer-not-installed", trainer="skyrl")
        tandem, others = settings_of_command(sys.argv[1:], f"python -m {_PLAIN}")
        from skyrl.train.config import SkyRLTrainConfig

        from tandem_skyrl.experiment import TandemExp, start
        from tandem_skyrl.refusals import check_run
        from tandem_skyrl.settings import put_settings

        own = [one for one in others if not one.startswith(_ENTRY)]
        cfg = SkyRLTrainConfig.from_cli_overrides(own)
        check_run(cfg, tandem)
    except TandemError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    put_settings(cfg, tandem)
    start(experiment or TandemExp, cfg)


if __name__ == "__main__":
    main()
