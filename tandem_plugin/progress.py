"""Progress of a command: a bar on a terminal, an occasional line in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape, render
from rich.progress import (
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from tandem_plugin.errors import printable

EVERY_S = 30.0
"""Seconds between two lines."""


class ShownProgress(Progress):
    """A progress bar on a terminal; otherwise a line every half minute.

    A command that finishes sooner writes no line; lines are also written while nothing advances.
    transient: remove the bar when done. console: where to show it; None
    is stderr. bar: False shows no bar, for code that draws its own bars on a terminal.
    """

    def __init__(
        self,
        *columns: str | ProgressColumn,
        transient: bool = True,
        console: Console | None = None,
        bar: bool = True,
    ) -> None:
        console = console or Console(stderr=True)
        super().__init__(
            *columns,
            console=console,
            transient=transient,
            disable=not (bar and console.is_terminal),
        )
        self._lines = not console.is_terminal
        self._stopped = threading.Event()

    def start(self) -> None:
        """As rich's ``Progress``; also starts writing lines."""
        super().start()
        if self._lines:
            # A daemon thread: it must not delay the exit of an interrupted command.
            threading.Thread(target=self._write_lines, name="tandem-progress", daemon=True).start()

    def stop(self) -> None:
        """As of rich's ``Progress``."""
        self._stopped.set()
        super().stop()

    def add_task(self, description: str, *arguments: Any, **fields: Any) -> TaskID:
        """As rich's ``Progress``, with the description as plain text."""
        return super().add_task(escape(printable(description)), *arguments, **fields)

    def _write_lines(self) -> None:
        while not self._stopped.wait(EVERY_S):
            for task in self.tasks[-1:]:
                line = _line_of(task)
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def waiting(task: str, console: Console | None = None, bar: bool = False) -> Iterator[None]:
    """While work of unknown length is running: a line now and then in a log.

    bar: whether to show on a terminal that it runs, for code that draws nothing itself.
    """
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with ShownProgress(*columns, console=console, bar=bar) as progress:
        progress.add_task(task, total=None)
        yield


def _line_of(task: Task) -> str:
    """``rollout: 120 of 960 (12%), 240,123 tokens, 83 s``."""
    parts = []
    if task.total:
        parts.append(f"{task.completed:,.0f} of {task.total:,.0f} ({task.percentage:.0f}%)")
    if note := task.fields.get("note"):
        parts.append(note())
    parts.append(f"{task.elapsed or 0:.0f} s")
    if remaining := task.fields.get("left"):
        parts.append(remaining())
    return f"{render(task.description).plain}: {', '.join(filter(None, parts))}"


class NoteColumn(ProgressColumn):
    """What the functions ``note`` and ``left`` of a task say, each time the bar is drawn."""

    def render(self, task: Task) -> Text:
        """As of rich's ``ProgressColumn``."""
        parts = (task.fields[name]() for name in ("note", "left") if name in task.fields)
        return Text(", ".join(filter(None, parts)))


class TimeLeft:
    """Estimates how long work will take, from the time between its first and its last advance.

    What comes before the first advance, such as the start of an engine, does not count. Call it for
    a text, empty before the second advance.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self._total = total
        self._done = done
        self._first: tuple[float, int] | None = None

    def advance(self, done: int = 1) -> None:
        """So much more is done."""
        self._done += done
        self._last = time.monotonic(), self._done
        self._first = self._first or self._last

    def __call__(self) -> str:
        if self._first is None or self._first == self._last or self._done >= self._total:
            return ""
        (began, before), (now, done) = self._first, self._last
        seconds = (now - began) / (done - before) * (self._total - done)
        seconds = max(0.0, seconds - (time.monotonic() - now))
        return (
            f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"
        )
