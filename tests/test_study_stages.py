"""What lets a study of hours go on after a kill: its stages, its settings, and what verl left."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

EXAMPLES = Path(__file__).parents[1] / "examples"


def module(path: str) -> Any:
    name = f"examples_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def stages() -> Any:
    return module("study/stages.py")


def test_stage_that_is_done_is_not_done_again(stages: Any, tmp_path: Path):
    calls: list[str] = []

    def work() -> dict[str, int]:
        calls.append("worked")
        return {"found": 3}

    said = io.StringIO()
    for _ in range(2):
        result = stages.Stages(tmp_path, Console(file=said)).run("train [x]", work)
        assert result == {"found": 3}
    assert calls == ["worked"]
    assert "train [x]: done before." in said.getvalue()


def test_stage_that_failed_is_done_again_and_keeps_no_note(stages: Any, tmp_path: Path):
    def fail() -> None:
        raise KeyboardInterrupt

    console = Console(file=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        stages.Stages(tmp_path, console).run("train", fail)
    again = stages.Stages(tmp_path, console)
    assert again.run("train", lambda: None) == {}
    assert list(again.seconds) == ["train"]


def test_folder_with_other_settings_is_refused(stages: Any, tmp_path: Path):
    path = tmp_path / "study.json"
    stages.check_settings(path, {"steps": 12, "seeds": (1, 2)})
    stages.check_settings(path, {"steps": 12, "seeds": (1, 2)})
    with pytest.raises(stages.StudyError, match=r"other settings \(steps\)"):
        stages.check_settings(path, {"steps": 13, "seeds": (1, 2)})


def test_processes_of_a_killed_training_are_ended_before_the_next(tmp_path: Path):
    psutil = pytest.importorskip("psutil")
    train = module("demo/train.py")
    paths = train.Paths(tmp_path)
    sleeper = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    left, other = (
        subprocess.Popen(
            sleeper, env=os.environ | {train._RUN_MARK: mark}, stdout=subprocess.PIPE, text=True
        )
        for mark in ("of-the-killed-run", "of-another")
    )
    try:
        for one in (left, other):
            assert one.stdout is not None
            assert one.stdout.readline() == "up\n"
        paths.mark.write_text("of-the-killed-run")
        train.end_left(paths)
        assert not psutil.pid_exists(left.pid)
        assert other.poll() is None
        assert not paths.mark.exists()
        train.end_left(paths)  # nothing is left, which is no mistake
    finally:
        for one in (left, other):
            with one:
                one.kill()
