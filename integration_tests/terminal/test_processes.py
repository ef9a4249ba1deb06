"""Commands with a real engine, killed: no process that they started outlives them for long."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.commands import ENGINE, TANDEM
from support.recipes import SIZES
from support.trainer_run import end_marked, leftovers, marked

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

PATIENCE_S = 60
"""From the command's end to that of all that it started: twice the guard's patience, and a load."""

Process = tuple[int, str]
"""A process id, and when the process started in ticks of the kernel: ids are used again."""

COMMANDS = {
    "rollout": ["--senior", "{senior}", "--out", "out.jsonl", "--problems", "sums.jsonl"],
    "eval": ["solo", "--senior", "s={senior}", "--benchmark", "b=sums.jsonl", "--out", "out"],
    "train": ["recipe.yaml"],
}
LONG = ["--n", "4", "--max-tokens", "150", *ENGINE]
WRITES = {"rollout": "out.jsonl", "eval": "out/**/*.jsonl", "train": "runs/**/rollouts/1.jsonl"}
"""A file that a command writes while its engine runs."""

ENGINE_CORE = "EngineCore"
"""In the title that vLLM's engine gives its process: each command must have started one."""


def arguments_of(command: str, senior: Path) -> list[str]:
    arguments = [part.format(senior=senior) for part in COMMANDS[command]]
    return [*TANDEM, command, *arguments, *(LONG if command != "train" else [])]


@pytest.fixture
def place(tmp_path: Path, checkpoints: dict[str, Path]) -> Path:
    """Problems, and the recipe of a run by verl that is too long to end by itself."""
    rows = [{"problem": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(100)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "trainer": "verl",
        "model": str(checkpoints["senior"]),
        "problems": "sums.jsonl",
        "device": "cpu",
        "steps": 15,
        **SIZES,
    }
    (tmp_path / "recipe.yaml").write_text("".join(f"{k}: {v}\n" for k, v in recipe.items()))
    return tmp_path


def running() -> dict[Process, tuple[int, str]]:
    """All processes of the machine that run: the parent's id, and the command line or title."""
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if fields[0] != "Z":
                processes[int(folder.name), fields[19]] = int(fields[1]), line.strip()
    return processes


class Descendants:
    """All that a process started, by parents while they lived, however each was renamed."""

    def __init__(self, root: int) -> None:
        self._pids = {root}
        self.lines: dict[Process, str] = {}

    def look(self) -> None:
        now = running()
        before = -1
        while before != len(self.lines):
            before = len(self.lines)
            for process, (parent, line) in now.items():
                if process in self.lines or parent in self._pids:
                    self.lines[process] = line or self.lines.get(process, "")
                    self._pids.add(process[0])

    def left(self) -> dict[int, str]:
        now = running()
        return {process[0]: self.lines[process] for process in self.lines if process in now}


@contextmanager
def started(command: str, place: Path, senior: Path) -> Iterator[subprocess.Popen[bytes]]:
    ray = tempfile.mkdtemp(prefix="tk", dir="/tmp")  # sockets, whose paths must be short
    environment = {
        **os.environ,
        **marked(place),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "RAY_TMPDIR": ray,
        "RAY_worker_niceness": "0",
    }
    with (place / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            arguments_of(command, senior),
            cwd=place,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        end_marked(place)
        shutil.rmtree(ray, ignore_errors=True)


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CASES = [(command, number) for number in SIGNALS for command in ("train", "rollout", "eval")]


@pytest.mark.parametrize(
    ("command", "number"), CASES, ids=[f"{command} {number.name}" for command, number in CASES]
)
def test_killed_command_leaves_no_process_of_its_engine(
    command: str, number: signal.Signals, place: Path, checkpoints: dict[str, Path]
) -> None:
    """The signal meets the command alone, as a scheduler or the kernel sends it."""
    with started(command, place, checkpoints["senior"]) as process:
        descendants = Descendants(process.pid)
        deadline = time.monotonic() + 900
        while not any(file.stat().st_size for file in place.glob(WRITES[command])):
            descendants.look()
            assert process.poll() is None, (place / "log.txt").read_text()[-5000:]
            assert time.monotonic() < deadline, (place / "log.txt").read_text()[-5000:]
            time.sleep(0.1)
        descendants.look()
        alive = descendants.left()
        assert any(ENGINE_CORE in line for line in alive.values()), alive
        process.send_signal(number)
        process.wait(120)
        began = time.monotonic()
        while descendants.left() or leftovers(place):
            assert time.monotonic() - began < PATIENCE_S, (descendants.left(), leftovers(place))
            time.sleep(0.2)
        print(f"{command} {number.name}: {len(alive)} ended in {time.monotonic() - began:.1f} s")
