"""Tandem's settings in the YAML file that TRL's ``--config`` names.

::

    tandem: {schedule: word, p: 0.3}
    tandem.cap: 16
    env: {TANDEM_CONFIG: '{"seed": 7}'}

TRL reads the same file, and leaves these keys to us.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.training.command import settings_of_content

_FLAG = "--config"


def dropped_settings(arguments: Sequence[str]) -> str:
    """Where a command of TRL's own has settings of tandem, which TRL ignores; else an empty text.

    TRL reads the file as well, and reports what is wrong with it.
    """
    places = [part for argument in arguments for part in split_flag(argument)]
    try:
        return f"The file of {_FLAG}" if settings_of_file(places) else ""
    except ConfigError:
        return ""


def split_flag(argument: str) -> list[str]:
    """``--config=FILE`` as the two arguments that TRL knows; any other argument as it is."""
    return argument.split("=", 1) if argument.startswith(f"{_FLAG}=") else [argument]


def settings_of_file(arguments: Sequence[str]) -> dict[str, Any]:
    """Tandem's settings in the file that TRL's arguments name; empty without a file.

    Raises :class:`ConfigError` for a file that cannot be read, and like
    :func:`~tandem_plugin.training.command.settings_of_content`.
    """
    if _FLAG not in arguments[:-1]:
        return {}
    path = arguments[arguments.index(_FLAG) + 1]
    return settings_of_content(_read(path), path)


def _read(path: str) -> dict[str, Any]:
    import yaml

    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError("trl-config-unreadable", path=path, reason=reason) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(
            "trl-config-unreadable", path=path, reason="it is not a mapping of names to values"
        )
    return content
