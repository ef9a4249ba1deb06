"""Spoiled inputs of every command: a sentence or a result, never a traceback, a hang or a loss.

``TANDEM_MUTATED_INPUTS`` says how many inputs there are in all, and ``TANDEM_MUTATED_SEED`` which
ones. What is found is written with the number of its input, which makes it again.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import stat
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mutated_commands import COMMANDS, Command, make_inputs
from mutations import spoil
from typer.main import get_command
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.errors import EngineError, EvaluationError
from tandem_plugin.grading import Grade

for needed in ("tokenizers", "transformers", "pyarrow", "matplotlib", "scipy"):
    pytest.importorskip(needed)

INPUTS = int(os.environ.get("TANDEM_MUTATED_INPUTS", "1000"))
SEED = int(os.environ.get("TANDEM_MUTATED_SEED", "0"))
SECONDS = 60
"""How long one input may take, on a machine that does much else."""


class _Graded:
    """Stands in for the grader, whose workers take seconds to start: what it is given counts."""

    def __init__(self, *limits: Any) -> None:
        pass

    def __enter__(self) -> _Graded:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def grade_batch(self, pairs: Any) -> list[Grade]:
        return [
            Grade("correct" if str(g) in t else "incorrect", t, "text", 1.0) for t, g, *_ in pairs
        ]


def _no_engine(*arguments: Any, **more: Any) -> Any:
    raise EngineError("The engine would start here.")


def _no_reader(*arguments: Any) -> Any:
    raise EvaluationError("A model would be loaded here.")


@pytest.fixture
def without_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    import tandem_plugin.lab.evaluation.legibility

    monkeypatch.setattr("tandem_plugin.grading.Grader", _Graded)
    monkeypatch.setattr("tandem_plugin.lab.rollouts.engine.start_engine", _no_engine)
    monkeypatch.setattr("tandem_plugin.lab.evaluation.engine_process._run", _no_engine)
    monkeypatch.setattr(tandem_plugin.lab.evaluation.legibility, "HFModel", _no_reader)
    built = get_command(app)  # made once: it takes longer than most commands do
    monkeypatch.setattr("typer.testing._get_command", lambda _: built)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("valid")
    with _within(folder):
        make_inputs(Path())
    return folder


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def end(*signalled: Any) -> None:
        raise TimeoutError(f"took longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _copy(valid: Path, work: Path, named: set[str]) -> None:
    """Copy what is named, and what is read without being named."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    first = {name.split("/")[0] for name in named} | {"vocab.json", "rollouts.jsonl.run.json"}
    first |= {f"{name}.run.json" for name in named & {"grades.jsonl"}}
    if "results" in first:
        first.add("model")
    for name in sorted(first):
        if (valid / name).is_dir():
            shutil.copytree(valid / name, work / name)
        elif (valid / name).is_file():
            shutil.copy(valid / name, work / name)


def _state(folder: Path, written: set[Path]) -> dict[Path, str]:
    """What lies under a folder but for what the command may write: kinds, links and contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path in written:
            continue
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            found[path] = f"link to {os.readlink(path)}"
        elif stat.S_ISREG(mode):
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif not stat.S_ISDIR(mode):
            found[path] = "a pipe"
    return found


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    return sorted({p for pattern in patterns for p in folder.glob(pattern) if not p.is_dir()})


def _written(folder: Path, command: Command) -> set[Path]:
    patterns = {p for path in command.written for p in (path, f"{path}/**/*")}
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    return found | {folder / pattern for pattern in patterns}  # links that lead nowhere too


def _fault(command: Command, valid: Path, number: int) -> str | None:
    """Run a command on one spoiled input; what is wrong, or None."""
    rng = random.Random(f"{SEED} {command.name} {number}")
    work = valid.parent / "work"
    arguments = [*command.name.removesuffix(" of a folder").split(), *command.arguments(rng)]
    _copy(valid, work, {*arguments, *(p.split("=")[-1] for p in arguments), *command.spoiled})
    spoiled = rng.choice(_matching(work, (rng.choice(command.spoiled),)))
    with _within(work):
        how = spoil(spoiled, rng)
        before = _state(work, _written(work, command))
        try:
            with _limited(SECONDS):
                done = CliRunner().invoke(app, arguments)
        except TimeoutError as error:
            return f"{how} of {spoiled.relative_to(work)}: {arguments}: {error}"
        after = _state(work, _written(work, command))
    where = f"{command.name}, {number}: {how} of {spoiled.relative_to(work)}: {arguments}"
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        text = "".join(traceback.format_exception(done.exception)[-6:])
        return f"{where}: {text[-1500:]}"
    if done.exit_code not in (0, 1) or "Traceback" in done.output:
        return f"{where}: exit code {done.exit_code}: {done.output[-500:]}"
    if done.exit_code == 1 and not done.output.strip():
        return f"{where}: failed without a word"
    if after.items() - before.items() - _new(before, after) or before.keys() - after.keys():
        changed = [str(p.relative_to(work)) for p in before if before[p] != after.get(p)]
        return f"{where}: changed {changed}"
    if new := {path for path, _ in _new(before, after)}:
        return f"{where}: left {sorted(map(str, new))}"
    return None


def _new(before: dict[Path, str], after: dict[Path, str]) -> set[tuple[Path, str]]:
    return {(path, what) for path, what in after.items() if path not in before}


@pytest.mark.timeout(4 * 3600)
@pytest.mark.usefixtures("without_engines")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_spoiled_inputs_end_in_a_sentence_and_lose_nothing(command: Command, valid: Path):
    share = command.weight / sum(one.weight for one in COMMANDS)
    faults = [_fault(command, valid, number) for number in range(max(5, round(INPUTS * share)))]
    found = [fault for fault in faults if fault]
    assert not found, f"{len(found)} of {len(faults)}:\n" + "\n".join(found[:20])


@pytest.mark.usefixtures("without_engines")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_valid_inputs_are_read(command: Command, valid: Path):
    """The other test would mean little if a command refused its inputs before they are spoiled."""
    sentences = []
    for seed in range(4):
        work = valid.parent / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(valid, work)
        arguments = command.arguments(random.Random(seed))
        name = command.name.removesuffix(" of a folder").split()
        with _within(work):
            done = CliRunner().invoke(app, [*name, *arguments])
        sentences.append((done.exit_code, done.output))
    assert any(
        code == 0 or any(reached in said for reached in ("would", "disjoint", "TP755"))
        for code, said in sentences
    ), sentences
