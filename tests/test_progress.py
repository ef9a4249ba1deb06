"""Progress where there is no terminal: a line now and then, and none of what is soon done."""

from __future__ import annotations

import threading

import pytest

from tandem_plugin import progress
from tandem_plugin.lab.rollouts.engine import response_progress
from tandem_plugin.progress import ShownProgress, waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, as the lines are timed by them."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_half_a_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with response_progress("rollout", 1000, 200) as advance:
        for _ in range(95):
            clock[0] += 1
            advance(1500)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "rollout: 230 of 1",
        "rollout: 260 of 1",
        "rollout: 290 of 1",
    ]
    assert "230 of 1,000 (23%), 45,000 tokens" in lines[0]


def test_what_is_soon_done_says_nothing(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with ShownProgress() as shown:
        task = shown.add_task("view", total=10)
        for _ in range(10):
            clock[0] += 2
            shown.advance(task)
    assert capsys.readouterr() == ("", "")


def test_a_line_comes_while_nothing_advances(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with ShownProgress() as shown:
        shown.add_task("grade", total=10)
        for _ in range(70):
            clock[0] += 1
            shown.line_if_due()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["grade: 0 of 10 (0%)"] * 2


def test_a_clock_of_its_own_looks_whether_a_line_is_due(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that never comes back to say how far it is, as one call of an engine or a trainer."""
    monkeypatch.setattr(progress, "TICK_S", 0.001)
    written = threading.Event()
    monkeypatch.setattr(progress, "_line_of", lambda task: written.set() or task.description)
    with waiting("start the engine"):
        assert not written.is_set()
        clock[0] += 31
        assert written.wait(60)
