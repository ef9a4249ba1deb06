"""A plugin for tandem-plugin: schedules in which the text decides who writes."""

from __future__ import annotations

from collections.abc import Callable

from tandem_plugin import hookimpl
from tandem_plugin.plugins.hookspecs import RegisterResolver
from tandem_plugin_handoffs.call import CallSchedule
from tandem_plugin_handoffs.fenced import FencedSchedule
from tandem_plugin_handoffs.think import ThinkSchedule

__all__ = [
    "CallSchedule",
    "FencedSchedule",
    "ThinkSchedule",
    "register_boundaries",
    "register_schedules",
]

SCHEDULES = (CallSchedule, FencedSchedule, ThinkSchedule)


@hookimpl
def register_schedules(register: Callable[[type], None]) -> None:
    for schedule in SCHEDULES:
        register(schedule)


@hookimpl
def register_boundaries(register: RegisterResolver) -> None:
    for schedule in SCHEDULES:
        markers = schedule.markers
        register(schedule.boundaries, markers.table, markers.classes)
