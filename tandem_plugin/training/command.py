"""The tandem settings of a run whose trainer has no place for them.

``TANDEM_CONFIG`` contains a JSON object; flags ``--tandem.NAME VALUE`` add to it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.request import resembles_tandem

VARIABLE = "TANDEM_CONFIG"
"""The environment variable whose presence turns tandem on."""

PREFIX = "--tandem."
"""The prefix of tandem's flags among the trainer's own."""


def tandem_config(environ: Mapping[str, str] = os.environ) -> TandemConfig | None:
    """The checked settings of the run that this process belongs to; None if it has none.

    Raises :class:`ConfigError` for invalid settings.
    """
    settings = environment_settings(environ)
    return None if settings is None else TandemConfig.from_mapping(settings)


def running_config() -> TandemConfig:
    """The checked settings of a tandem run; :class:`EngineError` if the process lost them."""
    config = tandem_config()
    if config is None:
        raise EngineError("tandem-variable-removed")
    return config


def environment_settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """The contents of ``TANDEM_CONFIG``; None if it is not set or empty.

    Raises :class:`ConfigError` for anything other than a JSON object.
    """
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return None
    settings = parsed(text)
    if not isinstance(settings, dict):
        raise ConfigError("tandem-variable-not-json", text=text)
    return settings


def settings_of_command(arguments: Sequence[str], plain: str) -> tuple[TandemConfig, list[str]]:
    """The settings of a command, and all other arguments; plain: the command without tandem.

    Raises :class:`ConfigError` for invalid or missing settings.
    """
    flags, trainer_arguments = split_arguments(arguments)
    from_environment = environment_settings()
    if from_environment is None and not flags:
        raise ConfigError("tandem-settings-missing", plain=plain)
    settings = merged({"a flag": flags, VARIABLE: from_environment or {}})
    return TandemConfig.from_mapping(settings), trainer_arguments


def merged(places: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Settings from several places, by what these are called.

    Raises :class:`ConfigError` for a setting that two places give two values.
    """
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for place, values in places.items():
        for name, value in values.items():
            if name in settings and settings[name] != value:
                raise ConfigError(
                    "tandem-setting-overridden",
                    name=name,
                    value=settings[name],
                    place=origins[name],
                    other=value,
                    other_place=place,
                )
            settings[name], origins[name] = value, place
    return settings


def split_arguments(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Tandem's flags as settings, with values read as JSON if possible, and all other arguments.

    Raises :class:`ConfigError` for a flag without a value, given twice, or misspelt.
    """
    settings: dict[str, Any] = {}
    trainer_arguments: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith(PREFIX):
            check_spelling(argument)
            trainer_arguments.append(argument)
            continue
        name, equals, value = argument.removeprefix(PREFIX).partition("=")
        if not equals:
            following = next(remaining, None)
            if following is None or following.startswith("--"):
                raise ConfigError("tandem-flag-without-value", name=name)
            value = following
        if name in settings:
            raise ConfigError("tandem-flag-twice", name=name)
        settings[name] = parsed(value)
    return settings, trainer_arguments


def check_spelling(argument: str) -> None:
    """Raise :class:`ConfigError` for ``--tandem_schedule``, ``--vllm.tandem.p``, ``--tandm.p``."""
    flag = argument.partition("=")[0]
    if not flag.startswith("-"):
        return
    for word in re.split(r"[\W_]+", flag):
        if resembles_tandem(word):
            name = flag.partition(word)[2].strip("._-").replace("-", "_") or "schedule"
            raise ConfigError("tandem-flag-invalid", flag=flag, name=name)


def parsed(value: Any) -> Any:
    """A text's value as JSON, or as a number such as ``.3``; anything else unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if _DECIMAL.fullmatch(value) else json.loads(value)
    except (ValueError, RecursionError):
        return value


_DECIMAL = re.compile(r"[+-]?(\.\d+|\d+\.)")
"""Decimals that people write and JSON has not."""
