"""A trainer's settings that do not go with tandem, as a table: which, when, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.training.unproven import Unproven

__all__ = ["Refusal", "Settings", "check_refusals", "given", "is_on"]

Settings = Callable[[str], Any]
"""The value of a trainer's setting by its name; None where it has none."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One setting that is refused, and the sentence that says why and what to choose.

    refused: whether a value is, which may depend on other settings. sentence: ``{key}`` and
    ``{value}`` stand for the setting and its value. unproven: the name by which a run may allow
    what is only unproven, which may be the ``{value}``; what has no name is known to be wrong.
    """

    key: str
    refused: Callable[[Any, Settings], bool]
    sentence: str
    unproven: str = ""


def given(value: Any, settings: Settings) -> bool:
    """Refuses whatever a setting says."""
    return value is not None


def is_on(value: Any, settings: Settings) -> bool:
    """Refuses a setting that is true, or a number above 0."""
    return bool(value)


def check_refusals(refusals: Iterable[Refusal], settings: Settings, unproven: Unproven) -> None:
    """Raise :class:`ConfigError` for the first of a run's settings that is refused, in order.

    unproven: what the run allows, and is told of.
    """
    for one in refusals:
        value = settings(one.key)
        if not one.refused(value, settings):
            continue
        sentence = one.sentence.format(key=one.key, value=value)
        name = one.unproven.format(value=value)
        if name not in unproven.names:
            raise ConfigError(sentence)
        unproven.check(name, sentence)
