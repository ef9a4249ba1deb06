"""Options of the form NAME=VALUE, given several times."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tandem_plugin.errors import ConfigError

__all__ = ["assignments"]


def assignments(option: str, given: Iterable[str]) -> dict[str, Any]:
    """Names and values; a value is read as JSON where it is some, else as text.

    option: how the option is called, for the :class:`ConfigError` of something else.
    """
    found: dict[str, Any] = {}
    for assignment in given:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"{option} {assignment} is not of the form NAME=VALUE, such as p=0.3."
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
