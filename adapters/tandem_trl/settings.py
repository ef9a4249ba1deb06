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
    try:
        return f"The file of {_FLAG}" if settings_of_file(with_file(arguments)) else ""
    except ConfigError:
        return ""


def with_file(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--config=FILE`` as the two that TRL knows, and ``~`` in it expanded.

    TRL opens the file by the name it is given.
    """
    places: list[str] = []
    for argument in arguments:
        parts = argument.split("=", 1) if argument.startswith(f"{_FLAG}=") else [argument]
        places += map(os.path.expanduser, parts) if _FLAG in (*parts, *places[-1:]) else parts
    return places


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
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError("trl-config-unreadable", path=path, reason=reason) from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(
            "trl-config-unreadable", path=path, reason="it is not a mapping of names to values"
        )
    return content
