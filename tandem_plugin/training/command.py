"""The tandem settings of a run whose trainer has no place for them: its command's and a variable's.

The environment variable ``TANDEM_CONFIG`` holds them as a JSON object, or the path of a file with
one; flags ``--tandem.NAME VALUE`` of the command are laid over it. Every process of a run reads the
variable, which the driver brings to them as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError, EngineError, shown

__all__ = [
    "PREFIX",
    "VARIABLE",
    "environment_settings",
    "running_config",
    "split_arguments",
    "tandem_config",
]

VARIABLE = "TANDEM_CONFIG"
"""The environment variable whose presence turns tandem on."""

PREFIX = "--tandem."
"""How the flags begin that are tandem's, among OpenRLHF's own."""


def tandem_config(environ: Mapping[str, str] = os.environ) -> TandemConfig | None:
    """The checked settings of the run that this process is a part of; None where it has none.

    Raises :class:`ConfigError` for settings that are wrong.
    """
    settings = environment_settings(environ)
    return None if settings is None else TandemConfig.from_mapping(settings)


def running_config() -> TandemConfig:
    """The checked settings of a run in tandem; :class:`EngineError` where the process lost them."""
    config = tandem_config()
    if config is None:
        raise EngineError(
            f"{VARIABLE} is not set in this process, though the job runs in tandem: something "
            "removed it from the job's runtime environment."
        )
    return config


def environment_settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """What ``TANDEM_CONFIG`` holds; None where it is not set or empty.

    Raises :class:`ConfigError` for something that is neither a JSON object nor a file with one.
    """
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return None
    source = VARIABLE
    if not text.startswith("{"):
        source = f"the file {text} that {VARIABLE} names"
        try:
            with open(os.path.expanduser(text), encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{VARIABLE}={shown(text)} is neither a JSON object nor a file that can be read "
                f"({getattr(error, 'strerror', None) or error}). Give, for example, "
                '{"schedule": "word"}, or the path of a file that holds such an object.'
            ) from error
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} does not hold JSON: {error}.") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{source} holds {shown(settings)}; expected an object of settings.")
    return settings


def split_arguments(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Tandem's flags as settings, and all other arguments as they are.

    ``--tandem.NAME VALUE`` and ``--tandem.NAME=VALUE``: a value is read as JSON where it is some
    (numbers, ``true``, ``null``), else as text. Raises :class:`ConfigError` for a flag without a
    value or given twice.
    """
    settings: dict[str, Any] = {}
    others: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith(PREFIX):
            others.append(argument)
            continue
        name, equals, value = argument.removeprefix(PREFIX).partition("=")
        if not equals:
            following = next(remaining, None)
            if following is None or following.startswith("--"):
                raise ConfigError(
                    f"{PREFIX}{name} has no value: give {PREFIX}{name} VALUE, such as "
                    f"{PREFIX}schedule word."
                )
            value = following
        if name in settings:
            raise ConfigError(f"{PREFIX}{name} is given twice.")
        settings[name] = _parsed(value)
    return settings, others


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
