"""Progress where there is no terminal: a line now and then, and none of what is soon done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem_plugin import progress
from tandem_plugin.progress import ShownProgress
from tandem_plugin.rollouts.progress import response_progress


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


def test_progress_that_is_not_wanted_is_not_shown(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with ShownProgress(shown=False) as shown:
        clock[0] += 100
        shown.advance(shown.add_task("grade", total=10))
    assert capsys.readouterr() == ("", "")


def test_a_command_says_how_far_it_is_beside_its_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sympy")
    from typer.testing import CliRunner

    from tandem_plugin.cli import app

    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    file = tmp_path / "responses.jsonl"
    row = {"response": "\\boxed{5}", "gold": "5"}
    file.write_text(json.dumps(row) + "\n")
    done = CliRunner().invoke(app, ["grade", str(file), "--out", str(tmp_path / "g"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    assert "grade: " in done.stderr
    assert "(100%)" in done.stderr
