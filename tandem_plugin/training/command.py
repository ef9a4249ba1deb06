"""The tandem settings of a run whose trainer has no place for them.

``TANDEM_CONFIG`` contains a JSON object; flags ``--tandem.NAME VALUE`` add to it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

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
    text = environ.get(VARIABLE, "").removeprefix("\ufeff").strip()
    if not text:
        return None
    settings = parsed(text)
    if not isinstance(settings, dict):
        raise ConfigError("tandem-variable-not-json", text=text)
    return settings


class CommandSettings(NamedTuple):
    """Tandem's settings in a trainer's command, and the arguments of the trainer itself."""

    tandem: TandemConfig
    trainer_arguments: list[str]
    apart: dict[str, Any]
    """What came with the settings and is none of them."""


def settings_of_command(
    arguments: Sequence[str],
    plain: str,
    of_file: Callable[[list[str]], Mapping[str, Any]] = lambda arguments: {},
    apart: Collection[str] = (),
) -> CommandSettings:
    """The settings of a command; plain: the command without tandem.

    of_file: reads the settings in the file that the trainer's own ``--config`` names. apart: names
    that a command may give like settings. Raises :class:`ConfigError` for invalid or missing
    settings, and where two places disagree.
    """
    flags, trainer_arguments = split_arguments(arguments)
    from_file = of_file(trainer_arguments)
    from_environment = environment_settings()
    settings = merged(
        {"a flag": flags, VARIABLE: from_environment or {}, "the file of --config": from_file}
    )
    set_apart = {name: settings.pop(name) for name in apart if name in settings}
    if from_environment is None and not settings:
        raise ConfigError("tandem-settings-missing", plain=plain)
    return CommandSettings(TandemConfig.from_mapping(settings), trainer_arguments, set_apart)


_KEY = PREFIX.strip("-.")


def is_tandems(key: str) -> bool:
    """Whether a key of a trainer's file is tandem's: ``tandem``, or ``tandem.p``."""
    return key == _KEY or key.startswith(f"{_KEY}.")


def settings_of_content(content: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Tandem's settings among the keys of a trainer's file, and in its ``env``; path: of the file.

    Raises :class:`ConfigError` for a key that is misspelt, given twice, or has no settings.
    """
    environment = content.get("env")
    text = environment.get(VARIABLE) if isinstance(environment, Mapping) else None
    if text is not None and not isinstance(text, str):
        text = json.dumps(text)
    settings = dict((environment_settings({VARIABLE: text}) if text else None) or {})
    return merged(
        {f"tandem: in {path}": _settings_of_keys(path, content), f"env: in {path}": settings}
    )


def _settings_of_keys(path: str, content: Mapping[str, Any]) -> dict[str, Any]:
    nested = content.get(_KEY)
    if not isinstance(nested, Mapping | None):
        raise ConfigError("trl-config-not-mapping", path=path, key=_KEY, value=nested)
    settings = dict(nested or {})
    for key, value in content.items():
        if not is_tandems(key):
            check_spelling(f"--{key}")
        elif key != _KEY:
            name = key.removeprefix(f"{_KEY}.")
            if name in settings:
                raise ConfigError("tandem-flag-twice", name=name)
            settings[name] = value
    return settings


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
