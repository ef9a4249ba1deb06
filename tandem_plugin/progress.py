"""How far a command is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID

__all__ = ["ShownProgress"]

EVERY_S = 30.0
"""Seconds between two lines."""


class ShownProgress(Progress):
    """A bar on stderr where that is a terminal; elsewhere a line there every half a minute.

    A command that is done sooner writes no line. shown: False shows neither. transient: let the
    bar go when it is done.
    """

    def __init__(
        self, *columns: str | ProgressColumn, transient: bool = True, shown: bool = True
    ) -> None:
        console = Console(stderr=True)
        bar = shown and console.is_terminal
        super().__init__(*columns, console=console, transient=transient, disable=not bar)
        self._lines = shown and not bar
        self._next = time.monotonic() + EVERY_S

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """As of rich's ``Progress``."""
        super().update(task_id, **changes)
        self._line(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As of rich's ``Progress``."""
        super().advance(task_id, advance)
        self._line(task_id)

    def _line(self, task_id: TaskID) -> None:
        if not self._lines or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        (task,) = (task for task in self.tasks if task.id == task_id)
        self.console.print(_line_of(task), markup=False, highlight=False, soft_wrap=True)


def _line_of(task: Task) -> str:
    """``rollout: 120 of 960 (12%), 240,123 tokens, 1:23, about 9:41 to go``."""
    parts = []
    if task.total:
        parts.append(f"{task.completed:,.0f} of {task.total:,.0f} ({task.percentage:.0f}%)")
    if "tokens" in task.fields:
        parts.append(f"{task.fields['tokens']:,} tokens")
    parts.append(_clock(task.elapsed or 0))
    if task.time_remaining:
        parts.append(f"about {_clock(task.time_remaining)} to go")
    return f"{task.description}: {', '.join(parts)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
