"""One run of a trainer: started, watched in its log, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

_MARKER = "TANDEM_TEST_RUN"
"""The environment variable by which every process of a run is known."""


@dataclass(frozen=True)
class TrainerRun:
    """What one run of a trainer left."""

    UPDATED: ClassVar[str]
    """What its log says wherever the trainer updated the model."""

    exit_code: int
    ended: bool
    """Whether the main process ended by itself; otherwise it was killed after its time."""
    lingered: float | None
    """Seconds from the watched sentence's appearance in the log to the end; None: never seen."""
    log: str
    folder: Path

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The metrics of training steps."""
        raise NotImplementedError


def assert_stopped(run: TrainerRun, sentence: str) -> None:
    """The run said this and ended by itself within two minutes, before any update."""
    assert run.ended, run.log[-3000:]
    assert run.exit_code not in (0, None)
    assert sentence in run.log, run.log[-3000:]
    assert run.lingered is not None
    assert run.lingered <= 120
    assert run.steps == []
    assert run.UPDATED not in run.log


def run_trainer(
    folder: Path,
    name: str,
    started: Callable[[Path, Path], tuple[Sequence[str], Mapping[str, str]]],
    watch: str | None,
    timeout: float,
) -> TrainerRun:
    """Run a trainer in a new folder of ``folder``, for at most ``timeout`` seconds.

    started: given that folder and one for Ray, the command and its environment. watch: a sentence
    of the log from whose first appearance to measure the end.
    """
    out = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
    # Ray puts sockets there, whose paths must be short.
    ray = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))
    command, environment = started(out, ray)
    log_file = out / "log.txt"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=out,
            env={**environment, **marked(out)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            seen = _follow(process, log_file, watch, timeout)
            ended = process.poll() is not None
        finally:
            process.kill()
            process.wait()
            end_marked(out)
    lingered = None if seen is None else time.monotonic() - seen
    shutil.rmtree(ray, ignore_errors=True)
    said = log_file.read_text(errors="replace")
    return TrainerRun(process.returncode, ended, lingered, said, out)


def _follow(
    process: subprocess.Popen[bytes], log: Path, watch: str | None, timeout: float
) -> float | None:
    """Wait for the end; return when the watched sentence was first seen in the log."""
    deadline = time.monotonic() + timeout
    seen = None
    while time.monotonic() < deadline:
        if watch is not None and seen is None and watch in log.read_text(errors="replace"):
            seen = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            break
    if watch is not None and seen is None and watch in log.read_text(errors="replace"):
        seen = time.monotonic()
    return seen


def free_port() -> int:
    """A port that nothing listens on, chosen by the system."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def given(own: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """A run's own variables with further ones, whose folders to import from come before its own."""
    paths = [one["PYTHONPATH"] for one in (environment, own) if one.get("PYTHONPATH")]
    return {**own, **environment, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def marked(out: Path) -> dict[str, str]:
    """What to put into the environment of a process, by which all that it starts is known."""
    return {_MARKER: str(out)}


def leftovers(out: Path) -> list[int]:
    """The processes of a run, by the marker that they inherited in their environment."""
    marker = f"{_MARKER}={out}".encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if marker in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
    return found


def end_marked(out: Path) -> None:
    """End what is left of all that was marked so; what ended well takes a moment for it."""
    deadline = time.monotonic() + 10
    while leftovers(out) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in leftovers(out):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
