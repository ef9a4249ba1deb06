"""Commands as users run them in a shell: to their end, or stopped on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.processes import members

TANDEM = [sys.executable, "-c", "from tandem_plugin.cli import main; main()"]
"""The command ``tandem``."""

ENGINE = [
    part
    for setting in (
        "dtype=float32",
        "enforce_eager=true",
        "max_model_len=256",
        "max_num_seqs=4",
        "gpu_memory_utilization=0.1",
    )
    for part in ("--engine", setting)
]
"""Options of commands that start a small engine."""


def run(command: list[str], patience: float = 1500) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; fails with what it said when that is not a good one."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    # With --json the error is on stdout; an engine's cause stands before its traces.
    assert done.returncode == 0, done.stderr[-8000:] + done.stdout[-2000:]
    return done


def stopped(
    command: list[str],
    stderr: Path,
    when: Callable[[], bool],
    how: signal.Signals,
    *,
    delay: float = 0.0,
    patience: float = 1200,
) -> int:
    """Start a command and send it a signal ``delay`` seconds after ``when()``; its exit code.

    A kill meets the command alone; an interrupt meets all of its processes, as in a terminal. No
    process may outlive the command.
    """
    with stderr.open("wb") as said:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
    try:
        deadline = time.monotonic() + patience
        while not when() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(delay)
        if how == signal.SIGINT:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        process.wait(60)
        while members(process.pid) and time.monotonic() < deadline + 60:
            time.sleep(0.05)
        assert members(process.pid) == [], "processes outlived the command"
    finally:
        for member in members(process.pid):
            os.kill(member, signal.SIGKILL)
    return process.returncode
