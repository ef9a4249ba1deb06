"""A command that measures in parts: each in a process of its own, with its own results and limit.

``<out>/<part>.json`` is complete after every case, ``<out>/<part>.log`` holds what the part's
processes said, and ``<out>/tables.md`` is written again whenever one ends. Started again, a part
continues where it stopped. A command for a GPU does nothing without one.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from results import FIGURE, Results, Table, cases_of, describe_machine, tables

LIMIT = 230
"""Seconds that a part may take where it says nothing: each ends within four minutes."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a command."""

    name: str
    purpose: str
    measure: Callable[[Results, bool], None]
    """Adds cases to the results; True for toy size, on a CPU. A case with ``passed: False`` is a
    failed check."""
    table: Callable[[Mapping[str, Any]], Table]
    limit: float = LIMIT
    """Seconds that it may take; started again, it goes on."""


def main(
    script: Path,
    purpose: str,
    parts: Sequence[Part],
    arguments: Sequence[str] | None = None,
    *,
    gpu: bool = True,
    options: Sequence[str] = (),
) -> int:
    """Runs parts, or within the process of one that part alone; returns the exit status.

    gpu: whether the parts need one, and have limits. options: the script's own, which each part's
    process gets too.
    """
    given = _parser(script, purpose, parts, gpu).parse_args(arguments)
    chosen = [part for part in parts if not given.part or part.name in given.part]
    out = given.out.resolve()
    if given.alone:
        return _alone(chosen[0], script, out, given.toy, options)
    if given.list:
        for part in parts:
            print(f"{part.name:16} {part.limit:4.0f} s  {part.purpose}")
        return 0
    if gpu and not given.toy and not _has_gpu():
        return 0
    out.mkdir(parents=True, exist_ok=True)
    passed = True
    for part in chosen:
        print(f"{part.name}: {part.purpose}. Log: {out / part.name}.log", flush=True)
        limit = given.limit or (part.limit if gpu else math.inf)
        passed &= run_part(part.name, script, out, toy=given.toy, limit=limit, options=options)
        shown = {part.name: part.table for part in parts if cases_of(out, part.name)}
        (out / "tables.md").write_text(tables(out, shown), encoding="utf-8")
    print((out / "tables.md").read_text(encoding="utf-8"))
    return int(not passed)


def run_part(
    name: str, script: Path, out: Path, *, toy: bool, limit: float, options: Sequence[str] = ()
) -> bool:
    """Run the part of a script in a process of its own, and say each figure when it is there.

    limit: seconds after which it is ended, with all that it started. options: the script's own.
    Returns whether it passed.
    """
    command = [sys.executable, str(script), "--alone", "--part", name, "--out", str(out), *options]
    start, said, late = time.monotonic(), set(cases_of(out, name)), False
    file = out / f"{name}.log"
    with file.open("wb") as log, file.open("rb") as written:
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
                new = [case for case in cases_of(out, name) if case not in said]
                said.update(new)
                for text in [*_figures(written), *new]:
                    print(f"  {time.monotonic() - start:4.0f} s  {text}", flush=True)
                late = time.monotonic() - start > limit
        finally:
            _end(process)
    ended = _ended(name, out, process.returncode, limit if late else None)
    print(f"{name}: {ended} ({time.monotonic() - start:.0f} s)", flush=True)
    return process.returncode == 0 and not late


def _figures(log: BinaryIO) -> list[str]:
    """The figures in the whole lines that were written since the last time."""
    found = []
    for line in iter(log.readline, b""):
        if not line.endswith(b"\n"):
            log.seek(-len(line), os.SEEK_CUR)
            break
        text = line.decode(errors="replace")
        if text.startswith(FIGURE):
            found.append(text.removeprefix(FIGURE).rstrip())
    return found


def _has_gpu() -> bool:
    import torch

    if torch.cuda.is_available():
        return True
    print(
        f"No GPU: PyTorch {torch.__version__} of {sys.executable} finds none. Nothing was run. "
        "With --toy the same runs at toy size on a CPU, which shows that it starts and ends."
    )
    return False


def _ended(name: str, out: Path, status: int, limit: float | None) -> str:
    """How a part ended, in a sentence."""
    found = cases_of(out, name)
    wrong = [key for key, case in found.items() if case.get("passed") is False]
    said = f"{len(found)} cases"
    if limit is not None:
        said += f"; stopped after {limit:.0f} s: started again, it continues"
    if wrong:
        said += f"; failed: {', '.join(wrong)}"
    elif status and limit is None:
        tail = (out / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-1500:]
        said += f"; exit status {status}:\n{tail}"
    return said


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what a part started: its processes are those of its session."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, way)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _alone(part: Part, script: Path, out: Path, toy: bool, options: Sequence[str]) -> int:
    """In the part's own process."""
    # vLLM's choice of a runner can be overruled, and must be again to measure the same.
    name = "VLLM_USE_V2_MODEL_RUNNER"
    overruled = f"{name}={os.environ[name]} " if name in os.environ else ""
    command = f"{overruled}python {script.parent.name}/{script.name} --part {part.name}"
    header = {
        "benchmark": part.name,
        "command": " ".join([command, *options]) + " --toy" * toy,
        "quick": toy,
        "machine": describe_machine(),
    }
    results = Results(out, part.name, header)
    part.measure(results, toy)
    return int(any(case.get("passed") is False for case in results.cases.values()))


def _parser(
    script: Path, purpose: str, parts: Sequence[Part], gpu: bool
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=purpose)
    names = [part.name for part in parts]
    folder = Path("runs") / (script.stem if gpu else "benchmarks")
    parser.add_argument(
        "--part", action="append", default=[], choices=names, help="this part alone; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="say what the parts are")
    parser.add_argument("--out", type=Path, default=folder, help="where results go")
    parser.add_argument(
        "--limit", type=float, help="seconds that each part may take, in place of its own limit"
    )
    parser.add_argument(
        "--toy", action="store_true", help="at toy size on a CPU: shows that it runs, nothing else"
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser
