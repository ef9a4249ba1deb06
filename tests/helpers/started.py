"""A run's start as in an environment that has the trainer, at the last version it is made for."""

from __future__ import annotations

from unittest.mock import patch

from tandem_plugin import TandemConfig
from tandem_plugin.patching.versions import MADE_FOR
from tandem_plugin.training.start import Start, TrainerRun


def started(run: TrainerRun, tandem: TandemConfig) -> Start:
    """The start of a run, checked; raises as it does."""
    versions = {package: last for package, (_, last) in MADE_FOR.items()}
    with patch("tandem_plugin.training.start.running_version", versions.get):
        return run.start(tandem)
