"""The registered study in three worlds: who is continued, who recovers, at equal accuracy alone.

    python examples/study/worlds.py [--rows examples/study/results/worlds] [--hours 10] [--page]

One process of one thread. Rows are appended as trainings end, and the same command resumes, as long
as nothing that decides them has changed. ``--page`` writes the page and trains nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from light.explored import OWN_BEST, draw_exposure, explored
from light.grpo import GRPO, TANDEM, Method
from light.study import check_settings
from light.task import Task
from light.verdicts import TAUGHT, chosen_coefficient, draw_predictors, page, power_lines
from light.worlds import (
    ARMS,
    CHOICE,
    COEFFICIENTS,
    EXPLORED,
    HALF_ALONE,
    KL,
    OTHERS,
    QUICK,
    RARE,
    READABLE,
    SELVES,
    SOME,
    WHOLE,
    Pair,
    Schedules,
    Size,
    Unit,
    arm_name,
    taught_row,
    trained_rows,
)

from tandem_plugin.plugins import using_plugins

HERE = Path(__file__).resolve().parent
DECIDING = ("grpo", "model", "responses", "task", "worlds")
"""Files of ``light`` whose contents decide the rows."""


@dataclass(frozen=True, slots=True)
class Job:
    """A training of a unit's senior by an arm, measured in these worlds; or, without an arm, the
    senior as taught."""

    unit: Unit
    arm: Method | str | None = None

    @property
    def name(self) -> str:
        """The arm's, in the rows."""
        return TAUGHT if self.arm is None else arm_name(self.arm)

    def places(self) -> list[tuple[int, str, str]]:
        """What identifies its rows."""
        return [(self.unit.number, world.name, self.name) for world in self.unit.worlds]


def jobs() -> list[Job]:
    """All of the study in its order: the first senior without KL-Reg, the choice of the
    coefficient, then the seniors of the two notations and those of the self-pair in turn; last what
    is explored."""
    first, *rest = READABLE
    listed = [*_jobs(first, ARMS[:-1])]
    candidates = [Method(f"{KL} {one:g}", kl=one) for one in COEFFICIENTS]
    for unit in CHOICE:
        listed += _jobs(unit, candidates)
    listed += list(_jobs(first, ARMS[-1:]))
    for place, unit in enumerate(SELVES):
        listed += _jobs(unit, ARMS)
        if place < len(rest):
            listed += _jobs(rest[place], ARMS)
    for unit in EXPLORED:
        listed += _jobs(replace(unit, worlds=(RARE, SOME)), [HALF_ALONE])
        listed += _jobs(replace(unit, worlds=OTHERS), [GRPO, TANDEM])
    for unit in READABLE:
        listed += _jobs(replace(unit, worlds=(SOME,)), [OWN_BEST])
    return list(dict.fromkeys(listed))


def _jobs(unit: Unit, arms: Sequence[Method | str]) -> Iterator[Job]:
    """As taught first, then every arm: a training for each world that it depends on."""
    for arm in (None, *arms):
        if isinstance(arm, Method) and not arm.needs_junior:
            yield Job(unit, arm)
        else:
            yield from (Job(replace(unit, worlds=(world,)), arm) for world in unit.worlds)


class Rows:
    """The rows of a folder, and the processor time that they took."""

    def __init__(self, folder: Path) -> None:
        self._path, self._times = folder / "rows.jsonl", folder / "times.jsonl"
        self.rows: list[Mapping[str, Any]] = _whole_lines(self._path)

    @property
    def hours(self) -> float:
        """Of one core, so far."""
        return sum(row["cpu_seconds"] for row in _whole_lines(self._times)) / 3600

    def has(self, job: Job) -> bool:
        """Whether a job is done."""
        done = {(row["unit"], row["world"], row["arm"]) for row in self.rows}
        return done.issuperset(job.places())

    def drop_torn_lines(self) -> None:
        """Remove what a process that was killed left of a line; nothing else may be writing."""
        for path in (self._path, self._times):
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")

    def add(self, job: Job, rows: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Append a job's rows, durably."""
        _append(self._path, rows)
        _append(self._times, [{"job": job.places()[0], "cpu_seconds": round(seconds, 1)}])
        self.rows = [*self.rows, *rows]


def _append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{json.dumps(row)}\n" for row in rows))
        file.flush()
        os.fsync(file.fileno())


def _whole_lines(path: Path) -> list[Any]:
    """The rows of a file that may be growing, without a line that has no end yet."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def run_job(job: Job, rows: Sequence[Mapping[str, Any]], size: Size, models: Path) -> list[Any]:
    """The rows of a job, rounded to six decimals."""
    task, unit = Task(), job.unit
    pairs = [Pair(task, size, models, unit.number, world) for world in unit.worlds]
    if job.arm is None:
        made = [taught_row(pair) for pair in pairs]
    else:
        arm = job.arm
        if isinstance(arm, str):
            arm = Method(KL, kl=chosen_coefficient(rows, CHOICE))
        made = trained_rows(pairs, arm, job.name)
    for row in made:
        row["points"] = [
            {
                name: value if isinstance(value, int) else round(value, 6)
                for name, value in at.items()
            }
            for at in row["points"]
        ]
    return made


def settings(size: Size) -> dict[str, Any]:
    """What decides the rows: sizes, code and PyTorch."""
    code = {name: (HERE / "light" / f"{name}.py").read_bytes() for name in DECIDING}
    return {
        **asdict(size),
        "torch": torch.__version__.split("+")[0],
        "code": {name: hashlib.sha256(text).hexdigest()[:16] for name, text in code.items()},
    }


def run(folder: Path, models: Path, size: Size, hours: float, listed: Sequence[Job]) -> None:
    """Every job that has no rows yet, in order, up to so many hours of one core."""
    check_settings(folder / "settings.json", settings(size))
    kept = Rows(folder)
    kept.drop_torn_lines()
    for number, job in enumerate(listed, 1):
        if kept.has(job):
            continue
        if kept.hours >= hours:
            print(f"{hours:g} hours of one core are spent.")
            return
        started = time.process_time()
        kept.add(job, run_job(job, kept.rows, size, models), time.process_time() - started)
        print(f"{number} of {len(listed)}: {job.places()}, {kept.hours:.2f} h.", flush=True)


def main() -> int:
    """Runs it; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=Path, default=HERE / "results" / "worlds", help="a folder")
    parser.add_argument("--models", type=Path, default=Path("runs/worlds"), help="taught models")
    parser.add_argument("--hours", type=float, default=10.0, help="of one core, in all")
    parser.add_argument("--power", action="store_true", help="print the registered power")
    parser.add_argument("--page", action="store_true", help="write the page of the rows")
    parser.add_argument("--quick", action="store_true", help="the smallest: nothing is learnt")
    options = parser.parse_args()
    if options.power:
        print("\n".join(power_lines()))
        return 0
    if not options.page:
        torch.set_num_threads(1)
        with using_plugins(Schedules()):
            size = QUICK if options.quick else WHOLE
            run(options.rows, options.models, size, options.hours, jobs())
    rows = Rows(options.rows).rows
    (options.rows / "worlds.md").write_text(f"{page(rows)}\n{explored(rows)}", encoding="utf-8")
    draw_predictors(rows, options.rows / "predictors.svg")
    draw_exposure(rows, options.rows / "exposure.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
