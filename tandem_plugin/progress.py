"""Progress of a command: a bar on a terminal, an occasional line in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape, render
from rich.progress import Progress, ProgressColumn, Task, TaskID

from tandem_plugin.errors import printable

__all__ = ["ShownProgress", "waiting"]

EVERY_S = 30.0
"""Seconds between two lines."""

TICK_S = 1.0
"""Seconds between two looks at the clock, while nothing advances."""


class ShownProgress(Progress):
    """A progress bar on a terminal; otherwise a line every half minute.

    A command that finishes sooner writes no line; lines are also written while nothing advances.
    shown: False shows neither. transient: remove the bar when done. console: where to show it; None
    is stderr. bar: False shows no bar, for code that draws its own bars on a terminal.
    """

    def __init__(
        self,
        *columns: str | ProgressColumn,
        transient: bool = True,
        shown: bool = True,
        console: Console | None = None,
        bar: bool = True,
    ) -> None:
        console = console or Console(stderr=True)
        is_terminal = console.is_terminal
        super().__init__(
            *columns,
            console=console,
            transient=transient,
            disable=not (shown and bar and is_terminal),
            get_time=lambda: time.monotonic(),
        )
        self._lines = shown and not is_terminal
        self._next = time.monotonic() + EVERY_S
        self._current: TaskID | None = None
        self._line_lock = threading.Lock()
        self._stopped = threading.Event()

    def start(self) -> None:
        """As of rich's ``Progress``; what writes lines starts as well."""
        super().start()
        if self._lines:
            # A daemon: nothing waits for a command that is ended in the middle.
            threading.Thread(target=self._tick, name="tandem-progress", daemon=True).start()

    def stop(self) -> None:
        """As of rich's ``Progress``."""
        self._stopped.set()
        super().stop()

    def add_task(self, description: str, *arguments: Any, **fields: Any) -> TaskID:
        """As of rich's ``Progress``, but that the description is plain text."""
        self._current = super().add_task(escape(printable(description)), *arguments, **fields)
        return self._current

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """As of rich's ``Progress``, but that a description is plain text."""
        if changes.get("description") is not None:
            changes["description"] = escape(printable(changes["description"]))
        super().update(task_id, **changes)
        self._current = task_id
        self.line_if_due()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As of rich's ``Progress``."""
        super().advance(task_id, advance)
        self._current = task_id
        self.line_if_due()

    def line_if_due(self) -> None:
        """Write how far the latest task is, where the last line was half a minute ago."""
        with self._line_lock:
            due = self._lines and not self._stopped.is_set() and time.monotonic() >= self._next
            task = next((task for task in self.tasks if task.id == self._current), None)
            if not due or task is None:
                return
            self._next = time.monotonic() + EVERY_S
            line = _line_of(task)
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            self.line_if_due()


@contextmanager
def waiting(what: str, console: Console | None = None) -> Iterator[None]:
    """While something goes on that cannot say how far it is: a line now and then in a log."""
    with ShownProgress(console=console, bar=False) as progress:
        progress.add_task(what, total=None)
        yield


def _line_of(task: Task) -> str:
    """``rollout: 120 of 960 (12%), 240,123 tokens, 1:23, about 9:41 to go``."""
    parts = []
    if task.total:
        parts.append(f"{task.completed:,.0f} of {task.total:,.0f} ({task.percentage:.0f}%)")
    if "tokens" in task.fields:
        parts.append(f"{task.fields['tokens']:,} tokens")
    if task.fields.get("state"):
        parts.append(str(task.fields["state"]))
    parts.append(_clock(task.elapsed or 0))
    if task.time_remaining:
        parts.append(f"about {_clock(task.time_remaining)} left")
    return f"{render(task.description).plain}: {', '.join(parts)}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
