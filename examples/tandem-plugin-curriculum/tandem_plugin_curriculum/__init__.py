"""A plugin for tandem-plugin: the schedule ``curriculum``."""

from __future__ import annotations

from collections.abc import Callable

from tandem_plugin import hookimpl
from tandem_plugin_curriculum.curriculum import CurriculumSchedule

__all__ = ["CurriculumSchedule", "register_schedules"]


@hookimpl
def register_schedules(register: Callable[[type], None]) -> None:
    register(CurriculumSchedule)
