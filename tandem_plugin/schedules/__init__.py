"""Schedules: who writes each token. One schedule a file; chosen by name with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tandem_plugin.errors import ConfigError, TandemError
from tandem_plugin.schedules.chunk import ChunkSchedule
from tandem_plugin.schedules.junior import JuniorSchedule
from tandem_plugin.schedules.parameters import TRAINING_STEP, shown, typed
from tandem_plugin.schedules.schedule import Schedule, Tensor, WalkingSchedule
from tandem_plugin.schedules.sentence import SentenceSchedule
from tandem_plugin.schedules.solo import SoloSchedule
from tandem_plugin.schedules.step import StepSchedule
from tandem_plugin.schedules.step_bernoulli import StepBernoulliSchedule
from tandem_plugin.schedules.token import TokenSchedule
from tandem_plugin.schedules.word import WordSchedule

__all__ = [
    "TRAINING_STEP",
    "ChunkSchedule",
    "JuniorSchedule",
    "Schedule",
    "SentenceSchedule",
    "SoloSchedule",
    "StepBernoulliSchedule",
    "StepSchedule",
    "Tensor",
    "TokenSchedule",
    "WalkingSchedule",
    "WordSchedule",
    "make_schedule",
    "parameter_names",
    "schedule_parameters",
    "schedules",
    "takes_training_step",
]


def schedules() -> dict[str, type[Schedule]]:
    """Every schedule that can be selected, by name: the built-in ones and those of plugins.

    Raises :class:`ConfigError` when two plugins register one name.
    """
    from tandem_plugin.plugins import catalogue

    return catalogue().of_kind("schedule")


def parameter_names(name: str) -> list[str]:
    """The parameters that the schedule called ``name`` takes.

    Raises :class:`ConfigError` for an unknown name.
    """
    return [field.name for field in fields(_schedule_class(name))]


def make_schedule(name: str, parameters: Mapping[str, Any]) -> Schedule:
    """The schedule called ``name`` with these parameters.

    Raises :class:`ConfigError` for an unknown name, an unknown parameter or a value out of range.
    """
    chosen = _schedule_class(name)
    allowed = parameter_names(name)
    for parameter, value in parameters.items():
        if parameter not in allowed:
            takes = f"takes: {', '.join(allowed)}" if allowed else "takes no parameters"
            raise ConfigError(
                f"{parameter}={shown(value)} is not a parameter of the schedule {name!r}, which "
                f"{takes}."
            )
    try:
        schedule: Schedule = typed(chosen(**parameters))
    except TandemError:
        raise
    except Exception as error:  # a plugin's own check
        raise ConfigError(
            f"The schedule {name!r} refuses its parameters: {type(error).__name__}: {error}"
        ) from error
    return schedule


def schedule_parameters(schedule: Schedule) -> dict[str, Any]:
    """The parameters of a schedule, by name, as they travel with requests and results."""
    return {field.name: getattr(schedule, field.name) for field in fields(schedule)}  # type: ignore[arg-type]


def takes_training_step(schedule: Schedule) -> bool:
    """Whether a schedule depends on the trainer's step, which trainers then fill in."""
    return TRAINING_STEP in schedule_parameters(schedule)


def _schedule_class(name: str) -> type[Any]:
    from tandem_plugin.plugins import catalogue

    found: type[Any] = catalogue().find("schedule", name).value
    return found
