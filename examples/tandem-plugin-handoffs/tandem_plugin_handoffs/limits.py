"""Limits of handoffs that a text decides, and the counters that they need in a schedule's run."""

from __future__ import annotations

from tandem_plugin import ConfigError

COUNTER_BITS = 20
"""A counter's share of the run; the state of the text takes the lowest bits."""

LARGEST = 2**COUNTER_BITS - 2


def check_limit(name: str, value: object) -> None:
    """Raise :class:`ConfigError` unless ``value`` is an integer from 1 to LARGEST."""
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise ConfigError(f"{name}={value!r} is not a limit. Use an integer from 1 to {LARGEST}.")
