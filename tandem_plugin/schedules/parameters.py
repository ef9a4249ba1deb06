"""Checks of schedule parameters: each error names the parameter, its value and what is allowed."""

from __future__ import annotations

import numpy as np

from tandem_plugin.errors import ConfigError

__all__ = ["MAX_COUNT", "check_count", "check_probability"]

MAX_COUNT = 2**31 - 1
"""The largest count: counts meet int64 tensors, on any device."""


def check_probability(name: str, value: object) -> float:
    """Return ``value`` as a float; raise :class:`ConfigError` unless it is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError(_not_a_probability(name, value))
    if not 0 <= value <= 1:
        raise ConfigError(_not_a_probability(name, value))
    return float(value)


def check_count(name: str, value: object) -> int:
    """Return ``value``; raise :class:`ConfigError` unless it is an integer from 1 to MAX_COUNT."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT:
        return value
    raise ConfigError(f"{name}={value!r} is not a count: give an integer from 1 to {MAX_COUNT}.")


def _not_a_probability(name: str, value: object) -> str:
    return f"{name}={value!r} is not a probability: give a number from 0 to 1."
