"""Progress where there is no terminal: a line now and then, and none of what is soon done."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from tandem_plugin import progress
from tandem_plugin.progress import ShownProgress


class Log(io.StringIO):
    """A log that says when a line has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        self.came.set()
        return written


def test_a_log_gets_lines_also_while_nothing_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    log = Log()
    with ShownProgress(console=Console(file=log), transient=False) as bar:
        bar.add_task("rollout", total=600, completed=60, tokens=45_000)
        assert log.came.wait(60)
    assert log.getvalue().startswith("rollout: 60 of 600 (10%), 45,000 tokens, 0 s")


def test_what_is_soon_done_says_nothing() -> None:
    log = Log()
    with ShownProgress(console=Console(file=log)) as shown:
        task = shown.add_task("view", total=10)
        shown.advance(task, 10)
    assert log.getvalue().strip() == ""
