"""Tandem's settings, and those of OpenRLHF, in a command's arguments."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.training.command import environment_settings, split_arguments
from tandem_plugin.training.refusals import Settings


def settings_of_command(arguments: Sequence[str], plain: str) -> tuple[TandemConfig, list[str]]:
    """The settings of a command, and all other arguments; plain: the command without tandem.

    Raises :class:`ConfigError` for invalid or missing settings.
    """
    flags, others = split_arguments(arguments)
    given = environment_settings()
    if given is None and not flags:
        raise ConfigError("tandem-settings-missing", plain=plain)
    return TandemConfig.from_mapping({**(given or {}), **flags}), others


def flags_of_command(arguments: Sequence[str], flags: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Some of a trainer's own flags, and ``--help``; flags: the trainer's options of each."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    for flag, options in flags.items():
        parser.add_argument(flag, **options)
    read, _ = parser.parse_known_args(list(arguments))
    return lambda flag: getattr(read, flag.removeprefix("--"))
