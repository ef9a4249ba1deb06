"""Selection by name: a schedule with its parameters, or the boundaries of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

from tandem_plugin.boundaries import BoundarySet, Vocabulary
from tandem_plugin.errors import ConfigError, TandemError, TokenizerError
from tandem_plugin.plugins.contracts import check_table, described_classes
from tandem_plugin.plugins.loading import SCHEDULES, catalogue
from tandem_plugin.schedules import Schedule, check_probability
from tandem_plugin.schedules.alone import ALONE, class_with_share
from tandem_plugin.schedules.parameters import typed
from tandem_plugin.schedules.schedule import token_classes


def list_schedules() -> dict[str, type[Schedule]]:
    """Every schedule that can be selected, by name: the built-in ones and those of plugins.

    Raises :class:`ConfigError` when two plugins register one name.
    """
    return catalogue().of_kind("schedule")


def parameter_names(name: str) -> list[str]:
    """The parameters that the schedule called ``name`` accepts, the last of them ``alone``.

    Raises :class:`ConfigError` for an unknown name.
    """
    return [*(field.name for field in fields(_schedule_class(name))), ALONE]


def built_in_parameters() -> frozenset[str]:
    """The parameters of all built-in schedules; loads no plugin."""
    return frozenset({field.name for kind in SCHEDULES for field in fields(kind)} | {ALONE})


def make_schedule(name: str, parameters: Mapping[str, Any]) -> Schedule:
    """The schedule called ``name`` with these parameters.

    ``alone``, a share of responses, is a parameter of every schedule; with 0 it leaves no trace.
    Raises :class:`ConfigError` for an unknown name, an unknown parameter or a value out of range.
    """
    chosen = _schedule_class(name)
    allowed = parameter_names(name)
    for parameter, value in parameters.items():
        if parameter not in allowed:
            takes = f"takes: {', '.join(allowed)}"
            raise ConfigError.misspelt(
                "schedule-parameter-unknown",
                parameter,
                allowed,
                parameter=parameter,
                value=value,
                name=name,
                takes=takes,
            )
    try:
        schedule: Schedule = typed(_with_share(chosen, parameters))
    except TandemError:
        raise
    except Exception as error:  # a plugin's own check
        raise ConfigError(
            "schedule-parameters-rejected", name=name, error_type=type(error).__name__, error=error
        ) from error
    return schedule


def _with_share(chosen: Any, parameters: Mapping[str, Any]) -> Any:
    """The schedule of a class, or with a share of responses alone of that class's extension."""
    settings = dict(parameters)
    share = check_probability(ALONE, settings.pop(ALONE, 0.0))
    return class_with_share(chosen)(**settings, alone=share) if share else chosen(**settings)


def list_resolvers() -> dict[str, Callable[[Vocabulary], NDArray[Any]]]:
    """Every boundary resolver that can be selected, by name: built-in ones and those of plugins.

    Raises :class:`ConfigError` when two plugins register one name.
    """
    return catalogue().of_kind("boundaries")


def resolver_for(schedule: Schedule, name: str | None) -> str:
    """The resolver that a schedule reads: the one called ``name``, or its own for None.

    Raises :class:`ConfigError` for an unknown name, or if the schedule reads token classes that
    this resolver does not find, or the resolver finds classes that the schedule does not read.
    """
    registration = catalogue().find("boundaries", name or schedule.boundaries)
    if registration.classes != token_classes(schedule):
        raise ConfigError(
            "schedule-classes-differ",
            schedule=schedule.name,
            reads=described_classes(token_classes(schedule)),
            resolver=registration.name,
            finds=described_classes(registration.classes),
        )
    return registration.name


def resolve_boundaries(name: str, vocabulary: Vocabulary) -> BoundarySet:
    """The boundary set that the resolver called ``name`` finds in a vocabulary.

    Raises :class:`ConfigError` for an unknown name or a resolver that breaks its contract,
    :class:`TokenizerError` for a vocabulary the resolver cannot read.
    """
    registration = catalogue().find("boundaries", name)
    try:
        table = registration.value(vocabulary)
    except TandemError:
        raise
    except Exception as error:  # a plugin's
        raise TokenizerError(
            "resolver-failed",
            name=name,
            provider=registration.provider,
            source=vocabulary.source,
            error_type=type(error).__name__,
            error=error,
        ) from error
    table = check_table(
        name, registration.provider, table, len(vocabulary), len(registration.classes)
    )
    return BoundarySet(name, table, registration.classes)


def _schedule_class(name: str) -> type[Any]:
    schedule_class: type[Any] = catalogue().find("schedule", name).value
    return schedule_class
