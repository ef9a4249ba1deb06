"""What a command starts ends with it, even if it is killed.

Processes are found by a mark in the environment that they inherit; a guard, which outlives the
command, ends them when the command has ended. Processes that its main thread forks, which show the
environment that their parent began with, are ended by Linux. This file is also the guard's program:
``python processes.py MARK SECONDS``.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "TANDEM_RUN_MARK"
"""In the environment of all that a command starts: one mark for each command that began it."""

PATIENCE_S = 20.0
"""What processes get to end by themselves before they are killed."""

_PR_SET_PDEATHSIG = 1


class _Guard(NamedTuple):
    """What ends the processes that a process leaves, and who that process is."""

    program: subprocess.Popen[bytes]
    guarded: int
    """The process."""
    main_thread: int | None
    """The identifier of its main thread."""


_guards: list[_Guard] = []
"""Of this process, at most one."""


def end_with_this_process() -> None:
    """Let all that this process starts from now on end when it does, however it ends."""
    if _guards:
        return
    mark = secrets.token_hex(8)
    _guards.append(_Guard(started_guard(mark), os.getpid(), threading.main_thread().ident))
    os.environ.update(marked(os.environ, mark))
    os.register_at_fork(after_in_child=_begin_forked)


def _begin_forked() -> None:
    """In a forked child: leave the guard to its parent, and end with the parent's main thread.

    The guard says who the parent was: one that has been killed is no longer the parent.
    """
    while _guards:
        program, parent, main_thread = _guards.pop()
        assert program.stdin is not None
        program.stdin.close()  # by which the guard sees the parent's end
        if threading.get_ident() == main_thread:
            end_with_parent(parent)


def end_with_parent(parent: int) -> None:
    """Let Linux kill this process when the thread of its parent that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def marked(environ: Mapping[str, str], mark: str) -> dict[str, str]:
    """The variables of an environment that has a further mark.

    A process that gives itself a title, such as vLLM's engine core, writes it over the environment
    by which it is found, unless ``setproctitle`` is told not to.
    """
    return {MARK: " ".join([*environ.get(MARK, "").split(), mark]), "SPT_NOENV": "1"}


def started_guard(mark: str) -> subprocess.Popen[bytes]:
    """A process that ends all that has the mark, when its standard input ends with this process."""
    return subprocess.Popen(
        [sys.executable, "-I", __file__, mark, str(PATIENCE_S)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_marked(
    mark: str, is_over: Callable[[], bool] = lambda: True, patience_s: float | None = None
) -> None:
    """End all processes that have a mark, also those that left their group.

    is_over: whether the first of them has ended, for its parent, who sees it without a mark.
    patience_s: seconds until they are killed; :data:`PATIENCE_S` by default.
    """
    patience_s = PATIENCE_S if patience_s is None else patience_s
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = marked_processes(mark)
        if is_over() and not pids:
            return
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and (not is_over() or marked_processes(mark)):
            time.sleep(0.1)


def marked_processes(mark: str) -> list[int]:
    """The living processes that inherited a mark."""
    pids = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                for entry in (place / "environ").read_bytes().split(b"\0"):
                    name, _, marks = entry.partition(b"=")
                    if name == MARK.encode() and mark.encode() in marks.split():
                        pids.append(int(place.name))
    return pids


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_marked(sys.argv[1], patience_s=float(sys.argv[2]))
    time.sleep(1)  # what was beginning shows its mark only once its program runs
    end_marked(sys.argv[1], patience_s=float(sys.argv[2]))
