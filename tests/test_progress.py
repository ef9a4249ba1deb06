"""Progress where there is no terminal: a line now and then, and none of what is soon done."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from tandem_plugin import progress
from tandem_plugin.progress import NoteColumn, ShownProgress, TimeLeft


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
        said = {"note": lambda: "45,000 tokens", "left": lambda: "about 9 min left"}
        bar.add_task("rollout", total=600, completed=60, **said)
        assert log.came.wait(60)
    line = "rollout: 60 of 600 (10%), 45,000 tokens, 0 s, about 9 min left\n"
    assert log.getvalue().startswith(line)


def test_a_bar_shows_what_is_being_written() -> None:
    tokens = [0]
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with ShownProgress(NoteColumn(), console=console) as bar:
        bar.add_task("rollout", total=16, note=lambda: f"{tokens[-1]:,} tokens", left=lambda: "")
        tokens.append(1_200)
        bar.refresh()
    assert "1,200 tokens" in console.file.getvalue()  # type: ignore[attr-defined]


def test_time_left_is_that_of_the_work_without_what_comes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    left = TimeLeft(total=20, done=5)
    assert left() == ""
    now += 500
    left.advance()
    assert left() == ""
    now += 60
    left.advance(2)
    assert left() == "about 6 min left"  # 12 are left, of 30 s each
    now += 330
    assert left() == "about 30 s left"
    now += 60
    assert left() == "about 0 s left"
    left.advance(12)
    assert left() == ""


def test_what_is_soon_done_says_nothing() -> None:
    log = Log()
    with ShownProgress(console=Console(file=log)) as shown:
        task = shown.add_task("view", total=10)
        shown.advance(task, 10)
    assert log.getvalue().strip() == ""
