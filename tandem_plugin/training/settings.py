"""What a trainer may not be asked for, whichever it is: refused before any worker starts."""

from __future__ import annotations

import os

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.schedules import TRAINING_STEP

__all__ = ["check_settings"]


def check_settings(tandem: TandemConfig) -> None:
    """Raise :class:`ConfigError` for a junior that is not there or a step that is not a setting."""
    _check_junior(tandem)
    _check_training_step(tandem)


def _check_junior(tandem: TandemConfig) -> None:
    junior = tandem.junior
    if junior is None:
        return
    path = os.path.expanduser(junior)
    is_local = os.path.isabs(path) or junior.startswith((".", "~"))
    if is_local and not os.path.isdir(path):
        raise ConfigError(
            f"tandem.junior={junior!r} does not exist. Give the folder of a Hugging Face "
            "checkpoint, a name on the Hub, or leave junior out for the checkpoint that the senior "
            "starts from."
        )


def _check_training_step(tandem: TandemConfig) -> None:
    if TRAINING_STEP in tandem.parameters:
        raise ConfigError(
            f"tandem.{TRAINING_STEP}={tandem.parameters[TRAINING_STEP]!r}: the trainer fills this "
            "in with its own step. Leave it out."
        )
