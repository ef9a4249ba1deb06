"""One part of a run in a process of its own: started, watched, and ended when its time is over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from tandem_plugin.progress import waiting

__all__ = ["Outcome", "cases_of", "run_part"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part ended."""

    passed: bool
    seconds: float
    sentence: str


def run_part(name: str, script: Path, out: Path, *, toy: bool, limit: float) -> Outcome:
    """Run the part of a script in a process of its own, and say each case when it is there.

    limit: seconds after which it is ended, with all that it started.
    """
    command = [sys.executable, str(script), "--alone", "--part", name, "--out", str(out)]
    start, said, late = time.monotonic(), set(cases_of(out, name)), False
    with waiting(name, Console()), (out / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--toy"] if toy else command,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None and not late:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                for case in [case for case in cases_of(out, name) if case not in said]:
                    said.add(case)
                    print(f"  {time.monotonic() - start:4.0f} s  {case}", flush=True)
                late = time.monotonic() - start > limit
        finally:
            _end(process)
    seconds = round(time.monotonic() - start, 1)
    return Outcome(
        process.returncode == 0 and not late,
        seconds,
        _sentence(name, out, process.returncode, seconds, limit if late else None),
    )


def _sentence(name: str, out: Path, status: int, seconds: float, limit: float | None) -> str:
    found = cases_of(out, name)
    wrong = [key for key, case in found.items() if case.get("passed") is False]
    failed = f" failed: {'; '.join(wrong)}" if wrong else ""
    if limit is not None:
        so_far = f"stopped after {limit:.0f} s with {len(found)} cases;{failed}"
        return f"{so_far.rstrip(';')}. Started again, it goes on."
    if wrong:
        return f"{len(found)} cases in {seconds:.0f} s;{failed}"
    if status:
        tail = (out / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-1500:]
        return f"ended with exit status {status} after {seconds:.0f} s:\n{tail}"
    return f"done in {seconds:.0f} s, {len(found)} cases"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what a part started: its processes are those of its session."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, way)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def cases_of(out: Path, name: str) -> dict[str, dict[str, Any]]:
    """The cases that a part has so far."""
    file = out / f"{name}.json"
    if not file.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return found
