"""The command ``python -m tandem_skyrl``: SkyRL's ``main_base`` in tandem.

::

    python -m tandem_skyrl --tandem.schedule word <SkyRL's settings>

Also where SkyRL's own command looks for a different entry point:
``trainer.override_entrypoint=tandem_skyrl.__main__``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tandem_plugin.training.command import settings_of_command
from tandem_skyrl.start import SkyRLSettings, warn_of_colocation

if TYPE_CHECKING:
    from skyrl.train.config import SkyRLTrainConfig

    from tandem_skyrl.experiment import TandemExp

_PLAIN = "skyrl.train.entrypoints.main_base"
_ENTRY = "trainer.override_entrypoint="


def main(
    experiment: type[TandemExp] | None = None, config: type[SkyRLTrainConfig] | None = None
) -> None:
    """Run SkyRL in tandem with the settings of the command line.

    experiment: one's own. config: the class of its settings, a subclass of SkyRL's own.
    """
    with SkyRLSettings.as_command():
        tandem, trainer_arguments, _ = settings_of_command(sys.argv[1:], f"python -m {_PLAIN}")
        start = SkyRLSettings.begin(tandem)
        from skyrl.train.config import SkyRLTrainConfig

        from tandem_skyrl.experiment import TandemExp, run_experiment
        from tandem_skyrl.settings import put_settings

        arguments = [argument for argument in trainer_arguments if not argument.startswith(_ENTRY)]
        cfg = (config or SkyRLTrainConfig).from_cli_overrides(arguments)
        start.check(SkyRLSettings.of(cfg))
        warn_of_colocation(cfg)
    put_settings(cfg, tandem)
    run_experiment(experiment or TandemExp, cfg)


if __name__ == "__main__":
    main()
