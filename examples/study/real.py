"""The study on a real language model: SmolLM2-135M-Instruct beside its frozen self, on sums.

    python examples/study/real.py [--out runs/study-real] [--seeds 2] [--workers 2]

GRPO, tandem, KL-Reg with three coefficients, and GRPO on a random half of its tokens, each from a
model that was taught to box an answer; every seed is taught on other sums, and is one unit of the
statistics. Loss, draws and replay are those of the toy study. Stop it as you like: the same command
resumes, and trains nothing twice.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from light import study
from light.grpo import GRPO, HALF, KL_REGS, TANDEM, Method, Optimization, train
from light.judging import LEVEL, Point, detectable, reach
from light.study import read_note, run_study, study_parser, table_lines
from real_model import different_sums, get_model, teach
from sums import MEASURES, HFModel, Sums, SumsEvaluation

from tandem_plugin.seeds import derive_seed

METHODS = (GRPO, TANDEM, HALF, *KL_REGS)
"""In the order in which they are trained; the first two have one seed more than the others."""


@dataclass(frozen=True, slots=True)
class Size:
    """taught: batches of 16 worked sums. held_out: problems that are evaluated, one response each;
    all others are trained on."""

    training: Optimization = field(
        default_factory=lambda: Optimization(steps=8, prompts=4, learning_rate=1e-5)
    )
    taught: int = 6
    held_out: int = 64
    evaluate_every: int = 4


@dataclass(frozen=True, slots=True)
class Run(study.Run):
    """One training; ``method`` None measures the model as it was taught."""

    seed: int
    method: Method | None

    @property
    def trained(self) -> str:
        """How its senior came about."""
        return "as taught" if self.method is None else self.method.name

    @property
    def name(self) -> str:
        return f"seed {self.seed} {self.trained}"


KEPT = (Run(1, GRPO), Run(1, TANDEM))
"""Whose seniors are kept, 540 MB each, for ``benchmarks/speculative.py``."""


def all_runs(seeds: int) -> list[list[Run]]:
    """Seed by seed, so that a study that is cut short has every method; GRPO and tandem once
    more."""
    whole = [[Run(seed, method) for method in (None, *METHODS)] for seed in range(1, seeds + 1)]
    return [*whole, [Run(seeds + 1, method) for method in (None, GRPO, TANDEM)]]


def taught_model(out: Path, size: Size, seed: int) -> Path:
    """The folder of a seed's model: taught on sums of its own, those held out among them.

    Teaching shows the form of an answer in less than a hundred examples.
    """
    folder = out / "models" / f"seed-{seed}"
    if not (folder / "taught").exists():
        shutil.copytree(out / "models" / "SmolLM2", folder, dirs_exist_ok=True)
        teach(folder, size.taught, seed=derive_seed(seed, "taught") % 2**31)
        (folder / "taught").touch()
    return folder


def run_one(out: Path, size: Size, run: Run) -> Mapping[str, Any]:
    """Train and measure one run; returns what is noted of it."""
    started = time.monotonic()
    folder = taught_model(out, size, run.seed)
    task, start = Sums(folder), HFModel(folder).eval()
    problems, held_out = different_sums(size.held_out)
    found: dict[str, Any] = {"name": run.name, "seconds": 0, "rewards": [], "curve": []}
    if run.method is None:
        evaluation = SumsEvaluation(task, start, held_out, run.seed)
        found["curve"].append({"step_number": 0, **evaluation.measure(start)})
        found["juniors"] = evaluation.juniors
    else:
        juniors = read_note(Run(run.seed, None).note(out))["juniors"]
        evaluation = SumsEvaluation(task, start, held_out, run.seed, juniors)
        training = train(task, start, run.method, problems, run.seed, size.training)
        for step, senior, reward in training:
            found["rewards"].append(reward)
            print(f"{run.name}: step {step}, reward {reward:.2f}", flush=True)
            if step % size.evaluate_every == 0 or step == size.training.steps:
                found["curve"].append({"step_number": step, **evaluation.measure(senior)})
        if run in KEPT:
            senior.model.save_pretrained(out / "seniors" / run.method.name)
            task.tokenizer.save_pretrained(out / "seniors" / run.method.name)
    return found | {"seconds": round(time.monotonic() - started)}


def page(out: Path, size: Size, runs: Sequence[Run]) -> str:
    """All results as Markdown: means over seeds, differences, then every seed."""
    notes = {run: read_note(run.note(out)) for run in runs if run.note(out).exists()}
    means, differences, each = [], [], []
    for method in (None, *METHODS):
        found = {run: note["curve"] for run, note in notes.items() if run.method == method}
        if found:
            name = next(iter(found)).trained
            means.append(_row(name, len(found), [curve[-1] for curve in found.values()]))
        each += [
            _row(f"{run.trained}, step {point['step_number']}", run.seed, [point])
            for run, curve in found.items()
            for point in curve
        ]
    for method in METHODS[1:]:
        for at in ("same step", "same accuracy alone"):
            if points := _differences(notes, method, at):
                differences.append(_row(f"{method.name}, {at}", len(points), points))
    minutes = sum(note["seconds"] for note in notes.values()) / 60
    return "\n\n".join(
        (
            "# The study on SmolLM2-135M-Instruct",
            f"{len(notes)} of {len(runs)} runs, {minutes:.0f} minutes in all, each on one core. "
            f"{size.training.steps} steps of {size.training.prompts} x {size.training.group}, "
            f"{size.held_out} held-out problems, temperature 1. ± is the standard error over "
            "seeds; with fewer than five, no difference can be told from chance by a test.",
            "## At the last step",
            _table("", "seeds", means),
            "## Differences of the same seed",
            _table("less GRPO", "seeds", differences),
            "## Every seed",
            _table("", "seed", each),
        )
    )


def write_page(out: Path, size: Size, runs: Sequence[Run]) -> None:
    """Write ``study.md`` of the runs that are done."""
    (out / "study.md").write_text(page(out, size, runs) + "\n", encoding="utf-8")


def _table(name: str, seeds: str, rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(table_lines([name, seeds, *MEASURES.values()], rows))


def _row(name: str, seeds: int, points: Sequence[Mapping[str, float]]) -> list[str]:
    """Of the measures at one point or, with their standard errors, at one of each seed."""
    return [name, str(seeds), *(_cell([point[key] for point in points]) for key in MEASURES)]


def _cell(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


def _differences(notes: Mapping[Run, Any], method: Method, at: str) -> list[dict[str, float]]:
    """Of each measure, a method less GRPO, seed by seed; empty where no seed has both."""
    found = []
    for run, note in notes.items():
        base = notes.get(Run(run.seed, GRPO))
        taught = notes.get(Run(run.seed, None))
        if run.method == method and base and taught:
            curves = [[*taught["curve"], *one["curve"]] for one in (note, base)]
            last = [curve[-1] for curve in curves]
            ours, theirs = last if at == "same step" else _as_accurate(*curves)
            found.append({key: ours[key] - theirs[key] for key in MEASURES})
    return found


def _as_accurate(one: Sequence[Point], two: Sequence[Point]) -> tuple[Point, Point]:
    """Both where they first are as accurate alone as the less accurate one ever is."""
    target = min(max(point["solo"] for point in curve) for curve in (one, two))
    return reach(one, "solo", target), reach(two, "solo", target)


def power_line(seeds: int, size: Size) -> str:
    """What a difference between two methods must be to be told, said before anything is trained."""
    # Of two accuracies of one seed, each of so many answers of which half are right.
    spread = float(np.sqrt(2 * 0.25 / size.held_out))
    return (
        f"With {seeds} seeds, and {size.held_out} answers for each, a difference of two methods' "
        f"accuracies is told at 5%, one-sided, with a power of 80% from "
        f"{detectable(spread, seeds, LEVEL):.2f} on."
    )


def main() -> int:
    """Runs it; returns the exit status."""
    parser = study_parser(__doc__, "runs/study-real")
    parser.add_argument("--seeds", type=int, default=2, help="of every method")
    options = parser.parse_args()
    out, size, units = options.out.resolve(), Size(), all_runs(options.seeds)
    print(power_line(options.seeds, size), flush=True)
    get_model(out / "models" / "SmolLM2")

    # A process gives its memory back.
    workers = options.workers
    status = run_study(out, size, units, run_one, workers, write_page, max_tasks_per_child=1)
    if status == 0:
        print(f"The tables are in {out / 'study.md'}.")
    return status


if __name__ == "__main__":
    sys.exit(main())
