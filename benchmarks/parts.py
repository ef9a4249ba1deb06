"""A command that measures in parts: each in a process of its own, with its own results and limit.

``<out>/<part>.json`` is complete after every case, ``<out>/<part>.log`` holds what the part's
processes said, ``<out>/parts.json`` how each part ended, and ``<out>/tables.md`` is written again
whenever one ends. Started again, a part continues where it stopped. ``--docs`` measures nothing: it
writes the tables of ``<out>`` into a page. A command for a GPU runs nothing without one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from results import Results, cases_of
from rich.console import Console
from table import PageError, Table, read_results, tables, write_page

from tandem_plugin.progress import waiting

__all__ = ["LIMIT", "PLACE", "Outcome", "Part", "main", "run_part"]

LIMIT = 230
"""Seconds that a part may take where it says nothing: each ends within four minutes."""

PLACE = "gpu"
"""Where a page has the tables: see :func:`table.markers`."""

_NEEDED = {"tandem-plugin", "torch", "vllm", "vllm runner", "engine plugin", "VLLM_PLUGINS"}
"""The checks of ``tandem doctor`` without which no engine would run in tandem."""


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a part ended."""

    passed: bool
    seconds: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing can be run here."""

    sentence: str
    status: int
    """Of the command: 0 where there is no GPU, since nothing is wrong then."""


def main(
    script: Path,
    purpose: str,
    parts: Sequence[Part],
    page: Path,
    arguments: Sequence[str] | None = None,
    *,
    place: str = PLACE,
) -> int:
    """Runs parts, or within the process of one that part alone; returns the exit status.

    page: the document that ``--docs`` writes the tables into. place: where on it; at :data:`PLACE`
    the parts need a GPU.
    """
    options = _parser(script, purpose, parts, page, place).parse_args(arguments)
    chosen = [part for part in parts if not options.part or part.name in options.part]
    out = options.out.resolve()
    if options.alone:
        return _alone(chosen[0], script, out, options.toy)
    if options.list:
        for part in parts:
            print(f"{part.name:16} {part.limit:4.0f} s  {part.purpose}")
        return 0
    if options.docs:
        return _write_docs(parts, out, page, place)
    if place == PLACE and (refused := refusal(options.toy)):
        print(refused.sentence)
        return refused.status
    out.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for part in chosen:
        print(f"{part.name}: {part.purpose}. Log: {out / part.name}.log", flush=True)
        limit = options.limit or (part.limit if place == PLACE else math.inf)
        outcomes[part.name] = run_part(part.name, script, out, toy=options.toy, limit=limit)
        _write(parts, out, outcomes)
        print(f"{part.name}: {outcomes[part.name].sentence}", flush=True)
    print((out / "tables.md").read_text(encoding="utf-8"))
    return int(not all(outcome.passed for outcome in outcomes.values()))


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


def refusal(toy: bool) -> Refusal | None:
    """What keeps this Python from running engines on a GPU, if anything does."""
    try:
        import torch
    except ImportError as error:
        return Refusal(
            f"{sys.executable} cannot import PyTorch ({error}): give the interpreter that has vLLM "
            "and tandem-plugin, as in make test-gpu PYTHON=/path/to/python.",
            1,
        )
    if not toy and not torch.cuda.is_available():
        return Refusal(
            f"No GPU: PyTorch {torch.__version__} of {sys.executable} finds none. Nothing was run, "
            "and nothing is claimed. With --toy the same runs at toy size on a CPU, which shows "
            "that it starts and ends, and nothing else.",
            0,
        )
    from tandem_plugin.cli.checks import CHECKS
    from tandem_plugin.cli.machine import Machine

    machine = Machine.here()
    if machine.vllm is None:
        return Refusal(f"vLLM is not installed for {sys.executable}: install it beside torch.", 1)
    findings = [check(machine) for check in CHECKS]
    wrong = [f for f in findings if f.check in _NEEDED and f.status != "ok"]
    for finding in wrong:
        print(f"{finding.check}: {finding.message} {finding.mend}".rstrip())
    if any(finding.status == "problem" for finding in wrong):
        return Refusal("Nothing was run: fix this first (tandem doctor looks again).", 1)
    return None


def _sentence(name: str, out: Path, status: int, seconds: float, limit: float | None) -> str:
    found = cases_of(out, name)
    wrong = [key for key, case in found.items() if case.get("passed") is False]
    failed = f" failed: {'; '.join(wrong)}" if wrong else ""
    if limit is not None:
        so_far = f"stopped after {limit:.0f} s with {len(found)} cases;{failed}"
        return f"{so_far.rstrip(';')}. Started again, it continues."
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


def _alone(part: Part, script: Path, out: Path, toy: bool) -> int:
    """In the part's own process."""
    from machine import describe_machine

    command = f"python {script.parent.name}/{script.name} --part {part.name}"
    header = {
        "benchmark": part.name,
        "command": _with_runner(command + " --toy" * toy),
        "quick": toy,
        "machine": describe_machine(),
    }
    results = Results(out, part.name, header)
    part.measure(results, toy)
    return int(any(case.get("passed") is False for case in results.cases.values()))


def _with_runner(command: str) -> str:
    """The command as it must be given again: vLLM's choice of a runner can be overruled."""
    name = "VLLM_USE_V2_MODEL_RUNNER"
    return f"{name}={os.environ[name]} {command}" if name in os.environ else command


def _write(parts: Sequence[Part], out: Path, outcomes: Mapping[str, Outcome]) -> None:
    """How parts ended, this time or before, and the tables of all that have cases."""
    file = out / "parts.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known |= {name: asdict(outcome) for name, outcome in outcomes.items()}
    file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    (out / "tables.md").write_text(_tables(parts, out), encoding="utf-8")


def _tables(parts: Sequence[Part], out: Path, *, whole: bool = False) -> str:
    """The tables of all parts that have cases; whole: :class:`PageError` for those of a toy."""
    shown = {part.name: part.table for part in parts if cases_of(out, part.name)}
    return tables(shown, read_results(out, list(shown), whole=whole))


def _write_docs(parts: Sequence[Part], out: Path, page: Path, place: str) -> int:
    try:
        text = _tables(parts, out, whole=True)
        if not text:
            raise PageError(f"{out} has no results.")
        write_page(page, place, text)
    except PageError as error:
        print(error)
        return 1
    print(f"Wrote {page}")
    return 0


def _parser(
    script: Path, purpose: str, parts: Sequence[Part], page: Path, place: str
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=purpose)
    names = [part.name for part in parts]
    folder = Path("runs") / (script.stem if place == PLACE else "benchmarks")
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
    parser.add_argument(
        "--docs", action="store_true", help=f"write the results into docs/{page.name}"
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser
