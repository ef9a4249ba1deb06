"""By which schedule an evaluation lets two models answer together, and its name in results.

It is a mapping of settings, as :class:`~tandem_plugin.config.TandemConfig` takes them: the
schedule's name, every parameter, and ``boundaries`` where it is not the schedule's own resolver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.plugins.selection import make_schedule
from tandem_plugin.schedules import schedule_parameters
from tandem_plugin.schedules.parameters import check_count

__all__ = ["BOUNDARIES", "TEXT", "engine_settings", "label", "request", "team_schedule"]

BOUNDARIES = "boundaries"

TEXT = "step-text"
"""Strict alternation of texts, each up to a blank line, for so many rounds of both: no schedule of
an engine, but one of calls (:mod:`tandem_plugin.lab.evaluation.text_handoff`)."""

_TEXT_SETTINGS = {"schedule": TEXT, "rounds": 150}


def team_schedule(
    name: str, parameters: Mapping[str, Any], boundaries: str | None = None
) -> dict[str, Any]:
    """The settings of a schedule; raises :class:`ConfigError` for one, or a parameter, unknown."""
    if name == TEXT:
        if unknown := {*parameters, *({BOUNDARIES} if boundaries else ())} - {"rounds"}:
            raise EvaluationError("TP838", name=sorted(unknown)[0])
        settings = {**_TEXT_SETTINGS, **parameters}
        check_count("rounds", settings["rounds"])
        return settings
    schedule = make_schedule(name, parameters)
    settings = {"schedule": schedule.name, **schedule_parameters(schedule)}
    if boundaries not in (None, schedule.boundaries):
        settings[BOUNDARIES] = boundaries
    return settings


def request(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a request for a response says of them: the resolver is the engine's."""
    return {name: value for name, value in settings.items() if name != BOUNDARIES}


def engine_settings(teams: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of one engine that answers under each of them.

    Raises :class:`EvaluationError` where they need several: an engine that is told a resolver uses
    it for every schedule.
    """
    teams = [{"schedule": "solo"} if team["schedule"] == TEXT else team for team in teams]
    resolvers = {team[BOUNDARIES] for team in teams if BOUNDARIES in team}
    if not resolvers:
        return dict(teams[0])
    used = {
        team.get(BOUNDARIES) or make_schedule(team["schedule"], {}).boundaries for team in teams
    }
    if len(used) > 1:
        raise EvaluationError("TP906", boundaries=", ".join(sorted(used)))
    return {**teams[0], BOUNDARIES: resolvers.pop()}


def label(settings: Mapping[str, Any]) -> str:
    """The name, and what is not by default, as in ``handover,first=senior,after=32``."""
    name = settings["schedule"]
    default = team_schedule(name, {})
    changed = [f"{key}={value}" for key, value in settings.items() if default.get(key) != value]
    return ",".join([name, *changed])
