"""Schedules: who writes each token. One schedule a file; chosen by name with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.schedules.junior import JuniorSchedule
from tandem_plugin.schedules.schedule import Schedule, Tensor
from tandem_plugin.schedules.solo import SoloSchedule
from tandem_plugin.schedules.step import StepSchedule
from tandem_plugin.schedules.token import TokenSchedule
from tandem_plugin.schedules.word import WordSchedule

__all__ = [
    "JuniorSchedule",
    "Schedule",
    "SoloSchedule",
    "StepSchedule",
    "Tensor",
    "TokenSchedule",
    "WordSchedule",
    "make_schedule",
    "parameter_names",
    "schedule_parameters",
    "schedules",
]

_BUILT_IN: tuple[type[Schedule], ...] = (
    WordSchedule,
    TokenSchedule,
    StepSchedule,
    SoloSchedule,
    JuniorSchedule,
)


def schedules() -> dict[str, type[Schedule]]:
    """Every schedule that can be selected, by name."""
    return {schedule.name: schedule for schedule in _BUILT_IN}


def parameter_names(name: str) -> list[str]:
    """The parameters that the schedule called ``name`` takes.

    Raises :class:`ConfigError` for an unknown name.
    """
    known = schedules()
    if name not in known:
        raise ConfigError(f"schedule={name!r} does not exist. Schedules: {', '.join(known)}.")
    return [field.name for field in fields(known[name])]  # type: ignore[arg-type]


def make_schedule(name: str, parameters: Mapping[str, Any]) -> Schedule:
    """The schedule called ``name`` with these parameters.

    Raises :class:`ConfigError` for an unknown name, an unknown parameter or a value out of range.
    """
    allowed = parameter_names(name)
    for parameter, value in parameters.items():
        if parameter not in allowed:
            takes = f"takes: {', '.join(allowed)}" if allowed else "takes no parameters"
            raise ConfigError(
                f"{parameter}={value!r} is not a parameter of the schedule {name!r}, which {takes}."
            )
    return schedules()[name](**parameters)


def schedule_parameters(schedule: Schedule) -> dict[str, Any]:
    """The parameters of a schedule, by name, as they travel with requests and results."""
    return {field.name: getattr(schedule, field.name) for field in fields(schedule)}  # type: ignore[arg-type]
