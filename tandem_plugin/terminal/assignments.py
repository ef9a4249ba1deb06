"""Options of the form NAME=VALUE, given several times."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.files.strict_json import parse_json

__all__ = ["SettingsOption", "assignments"]

SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the schedule, such as p=0.3 or cap=16. Can be repeated.",
    ),
]


def assignments(option: str, given: Iterable[str]) -> dict[str, Any]:
    """Names and values; a value is parsed as JSON if possible, otherwise kept as text.

    option: the option's name, for the :class:`ConfigError` of a malformed value.
    """
    example = "max_model_len=4096" if option == "--engine" else "p=0.3"
    found: dict[str, Any] = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise ConfigError("TP989", option=option, assignment=assignment, example=example)
        found[name] = value
        with suppress(ValueError):
            found[name] = parse_json(value)
    return found
