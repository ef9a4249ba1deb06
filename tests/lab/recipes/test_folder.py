"""A run's folder belongs to its recipe, and to one start at a time."""

from __future__ import annotations

import errno
import fcntl
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_runs import made_run
from refused import refused

from tandem_plugin.lab.recipes.data import RunData
from tandem_plugin.lab.recipes.folder import DONE, NOTE, SENIOR, RunFolder, note_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "model", b"weights of one")


def checkpoint(folder: Path, weights: bytes) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def data_in(folder: Path, text: str = "a problem") -> RunData:
    (folder / "train.parquet").write_text(text)
    return RunData("mine", folder / "train.parquet", None)


def noted(tmp_path: Path, *arguments: str, text: str = "a problem", **settings: Any) -> Any:
    run = made_run("verl", tmp_path, *arguments, **{"model": "model", **settings})
    return note_of(run, data_in(tmp_path, text))


def begun(tmp_path: Path, note: Any) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.begin(note, "the command\n")
    (folder.path / "rollouts").mkdir()
    (folder.path / "rollouts" / "1.jsonl").touch()
    return folder


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"learning_rate": 1e-5}, "learning_rate: 1e-06 there, 1e-05 here"),
        ({"max_response": 9}, "max_response: 3000 there, 9 here"),
        ({"method": "grpo"}, 'method: "tandem" there, "grpo" here'),
        ({"tandem": {"schedule": "word", "p": 0.3}}, "tandem.p: 0.5 there, 0.3 here"),
        ({"protocol": "release"}, 'protocol.name: "paper" there, "release" here'),
        ({"text": "other problems"}, "data.train: "),
        ({"junior": "a/b"}, 'junior: null there, "a/b" here'),
        ({"model": "Qwen/other"}, "model: "),
        ({"temperature": None}, "temperature: 0.6 there, null here"),
    ],
)
def test_folder_of_another_run_is_rejected_with_the_line_that_differs(
    changed: dict[str, Any], line: str, tmp_path: Path, model: Path
) -> None:
    folder = begun(tmp_path, noted(tmp_path))
    before = (folder.path / NOTE).read_text()
    with refused("run-folder-differs", folder=str(folder.path)) as caught:
        folder.check(noted(tmp_path, **changed), 250)
    assert line in str(caught.value.fields["differences"])
    assert (folder.path / NOTE).read_text() == before


@pytest.mark.parametrize(
    "changed",
    [{"steps": 300}, {"gpus": 1}, {"out": "run"}, {"micro_batch": 1}, {"benchmarks": {"A": "b"}}],
)
def test_same_run_may_go_on_for_longer_or_elsewhere(
    changed: dict[str, Any], tmp_path: Path, model: Path
) -> None:
    folder = begun(tmp_path, noted(tmp_path))
    folder.check(noted(tmp_path, **changed), changed.get("steps", 250))


def test_arguments_of_the_trainer_define_the_run(tmp_path: Path, model: Path) -> None:
    folder = begun(tmp_path, noted(tmp_path, "an.argument=1"))
    folder.check(noted(tmp_path, "an.argument=1"), 250)
    with refused("run-folder-differs"):
        folder.check(noted(tmp_path, "an.argument=2"), 250)


@pytest.mark.parametrize("which", ["model", "junior"])
@pytest.mark.parametrize("how", ["in place", "link"])
def test_model_that_was_swapped_behind_its_path_is_named(
    which: str, how: str, tmp_path: Path, model: Path
) -> None:
    real = checkpoint(tmp_path / "real", b"weights of two")
    (tmp_path / "link").symlink_to(real)
    settings = {which: "link"}
    folder = begun(tmp_path, noted(tmp_path, **settings))
    folder.check(noted(tmp_path, **settings), 250)
    if how == "in place":
        (real / "model.safetensors").write_bytes(b"WEIGHTS of two")  # of the same size
    else:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(checkpoint(tmp_path / "other", b"weights of six"))
    with refused("run-folder-differs") as caught:
        folder.check(noted(tmp_path, **settings), 250)
    assert str(caught.value.fields["differences"]).lstrip().startswith(f"{which}: ")


def test_reward_that_was_edited_is_named(tmp_path: Path, model: Path) -> None:
    reward = tmp_path / "mine.py"
    reward.write_text("def score(response, problem):\n    return 1.0\n")
    folder = begun(tmp_path, noted(tmp_path, reward="mine.py:score"))
    folder.check(noted(tmp_path, reward="mine.py:score"), 250)
    reward.write_text("def score(response, problem):\n    return 0.0\n")
    with refused("run-folder-differs"):
        folder.check(noted(tmp_path, reward="mine.py:score"), 250)


def test_command_that_left_nothing_may_be_corrected(tmp_path: Path, model: Path) -> None:
    folder = begun(tmp_path, noted(tmp_path))
    shutil.rmtree(folder.path / "rollouts")
    folder.check(noted(tmp_path, learning_rate=1.0), 250)


def test_run_that_has_more_steps_is_not_cut_back(tmp_path: Path, model: Path) -> None:
    folder = begun(tmp_path, noted(tmp_path))
    (folder.path / "seniors" / "step_10").mkdir(parents=True)
    folder.finish(folder.path / "seniors" / "step_10", 10)
    with refused("run-has-more-steps", done=10, steps=5):
        folder.check(noted(tmp_path), 5)
    assert folder.done == 10
    assert (folder.path / DONE).read_text() == "10\n"
    folder.check(noted(tmp_path), 10)
    (folder.path / "seniors" / "step_20").mkdir()
    folder.finish(folder.path / "seniors" / "step_20", 20)
    assert (folder.path / SENIOR).resolve().name == "step_20"


def test_commands_and_packages_are_kept_the_newest_last(tmp_path: Path, model: Path) -> None:
    folder = begun(tmp_path, noted(tmp_path))
    folder.begin(noted(tmp_path), "the second command\n")
    lines = (folder.path / "command").read_text().splitlines()
    assert lines[1::2] == ["the command", "the second command"]
    assert "pydantic==" in (folder.path / "packages").read_text()


def test_second_start_is_rejected_while_the_first_runs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.locked(), refused("run-folder-locked"), folder.locked():
        pytest.fail("two at once")
    with folder.locked():
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP])
def test_file_system_without_locks_is_no_other_run(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with RunFolder(tmp_path / "run").locked():
        pass


def test_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused("file-unwritable"), RunFolder(tmp_path / "file" / "run").locked():
        pytest.fail("it is a file")
