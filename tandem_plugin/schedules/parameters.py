"""Checks of schedule parameters: each error names the parameter, its value and what is allowed."""

from __future__ import annotations

from numbers import Real

from tandem_plugin.errors import ConfigError

__all__ = ["check_count", "check_probability"]


def check_probability(name: str, value: object) -> float:
    """Return ``value`` as a float; raise :class:`ConfigError` unless it is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
        raise ConfigError(f"{name}={value!r} is not a probability: give a number from 0 to 1.")
    return float(value)


def check_count(name: str, value: object) -> int:
    """Return ``value``; raise :class:`ConfigError` unless it is an integer of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value!r} is not a count: give an integer of 1 or more.")
    return value
