"""Schedule parameters: what a schedule accepts, and checks that name parameter, value and range."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from tandem_plugin.errors import ConfigError
from tandem_plugin.schedules.schedule import Schedule

MAX_COUNT = 2**31 - 1
"""The largest count: counts meet int64 tensors, on any device."""

TRAINING_STEP = "training_step"
"""The parameter that trainers fill with their current step, in a schedule that has it."""

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer of at most 64 bits",
    float: "a finite number",
    str: "a string",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a schedule's class."""

    name: str
    annotation: Any
    """bool, int, float, str, or a Literal of strings."""
    default: Any

    @property
    def type(self) -> str:
        """The type as shown to users: ``float``, or the choices ``senior|junior``."""
        choices = get_args(self.annotation)
        return "|".join(map(str, choices)) if choices else str(self.annotation.__name__)


@functools.cache
def schedule_signature(schedule: type[Any]) -> tuple[Parameter, ...]:
    """The parameters of a schedule's class, in order.

    Raises :class:`ConfigError` for a parameter without a default, or of a type that cannot be sent
    in requests: allowed are bool, int, float, str and Literal of strings.
    """
    name = schedule.__qualname__
    try:
        annotations = get_type_hints(schedule)
    except Exception as error:
        raise ConfigError("schedule-types-unreadable", name=name, error=error) from error
    parameters = []
    for field in fields(schedule):
        annotation = annotations[field.name]
        is_choice = get_origin(annotation) is Literal and all(
            isinstance(choice, str) for choice in get_args(annotation)
        )
        if annotation not in _WORDS and not is_choice:
            raise ConfigError(
                "schedule-parameter-type-unsupported",
                field=field.name,
                name=name,
                annotation=annotation,
            )
        if field.default is MISSING or not field.init:
            raise ConfigError("schedule-parameter-without-default", field=field.name, name=name)
        parameters.append(Parameter(field.name, annotation, field.default))
    return tuple(parameters)


def schedule_parameters(schedule: Schedule) -> dict[str, Any]:
    """The parameters of a schedule by name, as sent in requests and stored in results."""
    return {field.name: getattr(schedule, field.name) for field in fields(schedule)}  # type: ignore[arg-type]


def takes_training_step(schedule: Schedule) -> bool:
    """Whether a schedule depends on the training step, which trainers then fill in."""
    return TRAINING_STEP in schedule_parameters(schedule)


def typed(schedule: Any) -> Any:
    """The schedule with canonical values: equal schedules have the same fingerprint.

    A float is Python's own, whole numbers included, and zero has no sign; a choice is the string
    that was declared. Raises :class:`ConfigError` when a parameter is not of its declared type:
    booleans are not numbers, numbers are finite, and integers fit in 64 bits.
    """
    values = schedule_parameters(schedule)
    kind: Any = type(schedule)
    plain = {p.name: _plain(p, values[p.name]) for p in schedule_signature(kind)}
    if all(plain[name] is values[name] for name in plain):
        return schedule
    return replace(schedule, **plain)


def check_probability(name: str, value: object) -> float:
    """Return ``value`` as a float; raise :class:`ConfigError` unless it is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError("parameter-not-probability", name=name, value=value)
    if not 0 <= value <= 1:
        raise ConfigError("parameter-not-probability", name=name, value=value)
    return float(value) + 0.0  # and not -0.0, which is another text in a fingerprint


def check_count(name: str, value: object) -> int:
    """Return ``value``; raise :class:`ConfigError` unless it is an integer from 1 to MAX_COUNT."""
    if type(value) is int and 1 <= value <= MAX_COUNT:
        return value
    raise ConfigError("parameter-not-count", name=name, value=value, largest=MAX_COUNT)


def check_index(name: str, value: object) -> int:
    """Return ``value``; raise :class:`ConfigError` unless it is an integer from 0 to MAX_COUNT."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    raise ConfigError("parameter-not-index", name=name, value=value, largest=MAX_COUNT)


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return ``value``; raise :class:`ConfigError` unless it is one of the choices."""
    if isinstance(value, str) and value in choices:
        return value
    raise ConfigError("parameter-not-known", name=name, value=value, choices=", ".join(choices))


def _plain(parameter: Parameter, value: Any) -> Any:
    """A value in the one form of its declared type; ``value`` itself where it has that form.

    Numbers that are equal can be written otherwise: 1 and 1.0, 0.0 and -0.0.
    """
    kind = parameter.annotation
    if get_origin(kind) is Literal:
        chosen = check_choice(parameter.name, value, get_args(kind))
        return chosen if type(chosen) is str else str.__str__(chosen)
    is_whole = type(value) is int and abs(value) <= 2**53
    if kind is float and (is_whole or isinstance(value, float)):
        plain = float(value) + 0.0
        value = value if type(value) is float and repr(value) == repr(plain) else plain
    is_valid = type(value) is kind and (
        math.isfinite(value) if kind is float else kind is not int or -(2**63) <= value < 2**63
    )
    if not is_valid:
        raise ConfigError(
            "schedule-parameter-invalid",
            parameter=parameter.name,
            value=value,
            expected=_WORDS[kind],
        )
    return value
