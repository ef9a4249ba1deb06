"""Parts of a run on a GPU: each in a process of its own, with its own results and limit of time.

A command is a list of parts. ``<out>/<part>.json`` is complete after every case,
``<out>/<part>.log`` holds what the part's processes said, ``<out>/parts.json`` how each part ended,
and ``<out>/tables.md`` is written again whenever one ends. Without a GPU nothing is run and nothing
is claimed.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_ready import refusal
from page import PageError, read_results, tables, write_page
from part_process import Outcome, cases_of, run_part
from results import Results
from table import Table

__all__ = ["LIMIT", "PLACE", "Part", "main"]

LIMIT = 230
"""Seconds that a part may take where it says nothing: each ends within four minutes."""

PLACE = "gpu"
"""Where a page has the tables: see :func:`page.markers`."""


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

    @property
    def NAME(self) -> str:  # noqa: N802
        """The name, as a benchmark's module has it."""
        return self.name


def main(
    script: Path,
    purpose: str,
    parts: Sequence[Part],
    page: Path,
    arguments: Sequence[str] | None = None,
) -> int:
    """Runs parts, or within the process of one that part alone; returns the exit status.

    page: the document that ``--docs`` writes the tables into.
    """
    options = _parser(script, purpose, parts, page).parse_args(arguments)
    chosen = [part for part in parts if not options.part or part.name in options.part]
    out = options.out.resolve()
    if options.alone:
        return _alone(chosen[0], script, out, options.toy)
    if options.list:
        for part in parts:
            print(f"{part.name:16} {part.limit:4.0f} s  {part.purpose}")
        return 0
    if options.docs:
        return _write_docs(parts, out, page)
    if refused := refusal(options.toy):
        print(refused.sentence)
        return refused.status
    out.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for part in chosen:
        print(f"{part.name}: {part.purpose}. Log: {out / part.name}.log", flush=True)
        limit = options.limit or part.limit
        outcomes[part.name] = run_part(part.name, script, out, toy=options.toy, limit=limit)
        _write(parts, out, outcomes)
        print(f"{part.name}: {outcomes[part.name].sentence}", flush=True)
    print((out / "tables.md").read_text(encoding="utf-8"))
    return int(not all(outcome.passed for outcome in outcomes.values()))


def _alone(part: Part, script: Path, out: Path, toy: bool) -> int:
    """In the part's own process."""
    from machine import describe_machine

    command = f"python {script.parent.name}/{script.name} --part {part.name}"
    results = Results(
        out,
        part.name,
        {
            "benchmark": part.name,
            "command": _with_runner(command + " --toy" * toy),
            "quick": toy,
            "machine": describe_machine(),
        },
    )
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
    shown = [part for part in parts if cases_of(out, part.name)]
    return tables(shown, read_results(out, shown, whole=whole))  # type: ignore[arg-type]


def _write_docs(parts: Sequence[Part], out: Path, page: Path) -> int:
    try:
        text = _tables(parts, out, whole=True)
        if not text:
            raise PageError(f"{out} has no results.")
        write_page(page, PLACE, text)
    except PageError as error:
        print(error)
        return 1
    print(f"Wrote {page}")
    return 0


def _parser(
    script: Path, purpose: str, parts: Sequence[Part], page: Path
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=purpose)
    names = [part.name for part in parts]
    parser.add_argument(
        "--part", action="append", default=[], choices=names, help="this part alone; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="say what the parts are")
    parser.add_argument(
        "--out", type=Path, default=Path("runs") / script.stem, help="where results go"
    )
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
