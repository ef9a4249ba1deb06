"""One folder has one preparation, which is replaced as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, Literal

import pytest
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.errors import OutputError
from tandem_plugin.lab.data import Problem, ProblemSet, folder, prepare
from tandem_plugin.lab.data.folder import preparing
from tandem_plugin.lab.evaluation.inputs import read_benchmark

Trainer = Literal["verl", "openrlhf"]


def a_set(count: int = 40, name: str = "sums") -> ProblemSet:
    asked = ({"role": "user", "content": f"Add {i} and 2."} for i in range(count))
    return ProblemSet(
        name, tuple(Problem(i, (turn,), (str(i + 2),)) for i, turn in enumerate(asked))
    )


def contents(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}


def rows(file: Path) -> set[str]:
    return set(file.read_text().splitlines()) if file.exists() else set()


class Killed(BaseException):
    """Stands for the end of a process."""


def steps_until_done(out: Path, monkeypatch: pytest.MonkeyPatch, stop: int | None) -> int:
    """Prepare again with another seed; end the process at a step of the file system."""
    done = 0

    def counted(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            if done == stop:
                raise Killed
            done += 1
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "rename"):
            patch.setattr(folder.os, name, counted(getattr(os, name)))
        for name in ("unlink", "rmdir", "write_text", "mkdir"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr(folder.shutil, "rmtree", lambda *_, **__: None)  # nobody cleans up
        prepare(a_set(), "openrlhf", out, heldout=20, seed=1)
    return done


def test_no_interruption_leaves_files_of_two_preparations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old, new = tmp_path / "old", tmp_path / "new"
    prepare(a_set(), "openrlhf", old, heldout=20, seed=0)
    prepare(a_set(), "openrlhf", new, heldout=20, seed=1)
    sides = contents(old), contents(new)
    names = ("train.jsonl", "heldout.jsonl")
    total = steps_until_done(tmp_path / "count", monkeypatch, None)
    pending = 0
    for stop in range(total + 8):
        out = tmp_path / str(stop)
        prepare(a_set(), "openrlhf", out, heldout=20, seed=0)
        try:
            steps_until_done(out, monkeypatch, stop)
        except Killed:
            assert not rows(out / "train.jsonl") & rows(out / "heldout.jsonl")
            found = contents(out) if (out / "manifest.json").exists() else {}
            assert any(
                all(found.get(name, side[name]) == side[name] for name in ("manifest.json", *names))
                for side in sides
            )
            if any(not (out / name).exists() for name in names):
                pending += 1
                for name in names:
                    if (out / name).exists():
                        with refused("data-preparation-interrupted"):
                            read_benchmark(str(out / name))
        prepare(a_set(), "openrlhf", out, heldout=20, seed=1)
        assert contents(out) == sides[1]
    assert pending > 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_the_folder_as_it_was(tmp_path: Path, number: int):
    prepare(a_set(), "openrlhf", tmp_path / "out", heldout=20, seed=0)
    before = contents(tmp_path / "out")

    def interrupted() -> None:
        with preparing(tmp_path / "out", "sums", "openrlhf") as unfinished:
            (unfinished / "train.jsonl").write_text("half")
            os.kill(os.getpid(), number)
            signal.pause()

    process = multiprocessing.get_context("fork").Process(target=interrupted)
    process.start()
    process.join(30)
    assert process.exitcode not in (0, None)
    assert contents(tmp_path / "out").items() >= before.items()
    prepare(a_set(), "openrlhf", tmp_path / "out", heldout=20, seed=0)
    assert contents(tmp_path / "out") == before


def test_two_cannot_prepare_in_one_folder_at_once(tmp_path: Path):
    with preparing(tmp_path, "sums", "openrlhf"):
        with refused("file-locked", path=str(tmp_path)):
            prepare(a_set(), "openrlhf", tmp_path)
        prepare(a_set(), "openrlhf", tmp_path / "another")
    assert contents(tmp_path) == {}
    prepare(a_set(), "openrlhf", tmp_path)


def test_folder_is_prepared_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def failing(file: object, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", failing)
    with preparing(tmp_path, "sums", "openrlhf"):
        (tmp_path / ".prepare.lock").unlink()  # as a second process does, which is not kept out
    assert str(tmp_path) in caplog.text
    prepare(a_set(), "openrlhf", tmp_path)
    assert (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("name", ["train.jsonl", "heldout.jsonl", "manifest.json"])
@pytest.mark.parametrize("content", ['{"my": "own"}\n', ""])
def test_files_of_the_user_are_never_replaced(tmp_path: Path, name: str, content: str):
    (tmp_path / name).write_text(content)
    with refused("data-folder-foreign-file", file=name):
        prepare(a_set(), "openrlhf", tmp_path, heldout=5)
    assert contents(tmp_path) == {name: content.encode()}


def test_a_changed_file_is_not_replaced_and_other_files_of_the_folder_stay(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    prepared = prepare(a_set(), "openrlhf", tmp_path, heldout=5)
    first = contents(tmp_path)
    assert prepare(a_set(), "openrlhf", tmp_path, heldout=5).replaced is None
    assert contents(tmp_path) == first
    again = prepare(a_set(), "openrlhf", tmp_path, heldout=5, seed=1)
    assert again.replaced == prepared.contents
    with prepared.files["train"].open("a") as file:
        file.write("{}\n")
    changed = contents(tmp_path)
    with refused("data-folder-foreign-file", file="train.jsonl"):
        prepare(a_set(), "openrlhf", tmp_path, heldout=5)
    assert contents(tmp_path) == changed


@pytest.mark.parametrize(
    ("name", "trainer"), [("others", "openrlhf"), ("sums", "verl"), ("others", "verl")]
)
def test_another_set_or_trainer_needs_another_folder(tmp_path: Path, name: str, trainer: Trainer):
    pytest.importorskip("pyarrow")
    prepare(a_set(), "openrlhf", tmp_path, heldout=5)
    before = contents(tmp_path)
    with refused("data-folder-other-set", name="sums", trainer="openrlhf"):
        prepare(a_set(name=name), trainer, tmp_path, heldout=5)
    assert contents(tmp_path) == before


def test_a_failure_leaves_neither_a_folder_nor_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    for out in (tmp_path / "new", tmp_path):
        with refused("file-unwritable", reason="No space left on device"):
            prepare(a_set(), "openrlhf", out)
    assert contents(tmp_path) == {}
    with pytest.raises(OutputError):
        prepare(a_set(), "openrlhf", Path("/dev/null"))


def of_two_trainers(out: Path) -> None:
    """A folder of version 0.x, in which the second trainer's manifest replaced the first one's."""
    for trainer in ("verl", "openrlhf"):
        prepare(a_set(), trainer, out / trainer, heldout=5)  # type: ignore[arg-type]
        for file in (out / trainer).iterdir():
            os.replace(file, out / file.name)


def test_a_file_of_another_preparation_than_the_manifests_is_not_evaluated(tmp_path: Path):
    pytest.importorskip("pyarrow")
    of_two_trainers(tmp_path)
    read_benchmark(str(tmp_path / "heldout.jsonl"))
    lost = tmp_path / "heldout.parquet"
    with refused("data-file-not-in-manifest", trainer="openrlhf"):
        read_benchmark(str(lost))
    command = ["rollout", "--senior", "s", "--problems", str(lost), "--out", str(tmp_path / "r")]
    done = CliRunner().invoke(app, [*command, "--grade"])
    assert (done.exit_code, "data-file-not-in-manifest" in done.stderr) == (1, True), done.stderr
    (tmp_path / "test.jsonl").write_text(json.dumps({"problem": "1 + 1?", "answer": 2}))
    read_benchmark(str(tmp_path / "test.jsonl"))


def test_each_trainer_is_evaluated_on_the_prompts_of_its_own_folder(tmp_path: Path):
    pytest.importorskip("pyarrow")
    source = tmp_path / "sums.jsonl"
    source.write_text("".join(json.dumps({"problem": f"{i} + 1?", "answer": i + 1}) + "\n"
                              for i in range(9)))  # fmt: skip
    for trainer, file in (("verl", "heldout.parquet"), ("openrlhf", "heldout.jsonl")):
        out = tmp_path / trainer
        command = ["data", "prepare", str(source), "--to", trainer, "--out", str(out)]
        done = CliRunner().invoke(
            app, [*command, "--heldout", "3", "--template", "{problem}", "--instruction", ""]
        )
        assert done.exit_code == 0, done.output
        for question in read_benchmark(str(out / file)).questions():
            assert question["messages"][0]["content"].endswith(" + 1?")


def test_replacing_an_earlier_preparation_is_said(tmp_path: Path):
    source = tmp_path / "sums.jsonl"
    source.write_text("".join(json.dumps({"problem": f"{i} + 1?", "answer": i + 1}) + "\n"
                              for i in range(9)))  # fmt: skip
    command = ["data", "prepare", str(source), "--to", "openrlhf", "--out", str(tmp_path / "out")]
    assert "replaced" not in CliRunner().invoke(app, [*command, "--heldout", "3"]).output
    assert "replaced" not in CliRunner().invoke(app, [*command, "--heldout", "3"]).output
    done = CliRunner().invoke(app, [*command, "--heldout", "4"])
    assert "replaced: other problems of sums (6 train, 3 heldout, seed 0)" in done.output
