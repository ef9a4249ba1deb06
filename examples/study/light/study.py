"""What both studies share: the notes that they go on by, their runs, their tables and options."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tandem_plugin.lab.evaluation.results import write_json


class Run:
    """One training, or the measuring of a model as it was taught, by a name of its own."""

    __slots__ = ()
    name: str

    def note(self, out: Path) -> Path:
        """The file with what came of it."""
        return out / "trainings" / f"{self.name.replace(' ', '-')}.json"


RunOne = Callable[[Path, Any, Any], Mapping[str, Any]]
"""Does one run of a study of some size in a folder; returns what its note says."""
AfterRun = Callable[[Path, Any, Sequence[Any]], Any]
"""Collects what all runs have noted, after each of them."""


def read_note(path: Path) -> dict[str, Any]:
    """What a run noted."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Notes the study's settings, or ends it in a folder that was begun with other ones."""
    wanted = json.loads(json.dumps(settings))
    if not path.exists():
        write_json(path, wanted)
        return
    found = read_note(path)
    differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    if differing:
        sys.exit(
            f"{path.parent} holds a study with other settings ({', '.join(differing)}): give "
            "another folder with --out, or remove this one."
        )


def study_parser(description: str | None, out: str) -> argparse.ArgumentParser:
    """The options of both studies."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(out), help="a folder")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, default=cores, help="processes")
    return parser


def run_study(
    out: Path,
    size: Any,
    units: Sequence[Sequence[Run]],
    run_one: RunOne,
    workers: int,
    after: AfterRun,
    **options: Any,
) -> int:
    """Every run that has no note yet: units in order, and a unit's runs one after another in one
    process.

    size: a dataclass of settings; a folder with notes of other ones is refused. after: called in
    that process after each run. options: more of the pool of processes. Returns the exit status.
    """
    context = multiprocessing.get_context("spawn")
    check_settings(out / "study.json", asdict(size))
    every = [run for unit in units for run in unit]
    with ProcessPoolExecutor(workers, context, **options) as pool:
        waiting = [pool.submit(_noted, run_one, out, size, unit, every, after) for unit in units]
        try:
            for future in as_completed(waiting):
                future.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if not isinstance(error, KeyboardInterrupt):
                raise
            print("Interrupted; the same command resumes it.")
            return 130
    return 0


def _noted(
    run_one: RunOne,
    out: Path,
    size: Any,
    unit: Sequence[Run],
    every: Sequence[Run],
    after: AfterRun,
) -> None:
    """In a process of its own: the runs of a unit that have no note."""
    torch.set_num_threads(1)
    for run in unit:
        if not run.note(out).exists():
            write_json(run.note(out), run_one(out, size, run))
            after(out, size, every)
            done = sum(one.note(out).exists() for one in every)
            print(f"{done} of {len(every)}: {run.name}.", flush=True)


def table_lines(
    columns: Sequence[str], rows: Iterable[Sequence[str]], words: Iterable[int] = (0,)
) -> list[str]:
    """A Markdown table line by line; all columns but those of ``words`` are of numbers."""
    rule = ["---" if place in words else "---:" for place in range(len(columns))]
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]
    return [line.replace("|  |", "| |") for line in lines]
