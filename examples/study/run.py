"""The paper's study at toy scale: GRPO, KL-Reg and TRL trained alike, evaluated on every axis.

Runs on two CPU cores without a GPU and without a network; sized for an hour::

    python examples/study/run.py [--out runs/study] [--quick]

The same command goes on after a kill.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tandem_commands as commands
from demo import (
    TRAINING_REWARD,
    Metrics,
    Paths,
    TrainingError,
    teach,
    train,
)
from methods import METHODS, run_name, validation_overrides
from problem_files import ProblemFiles, held_out_problems, validation_problems, write_problems
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from size import QUICK, WHOLE, Size
from stages import Stages, StudyError, check_settings
from summary import write_summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study; returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        run(options.out.resolve(), QUICK if options.quick else WHOLE, console)
    except (StudyError, TrainingError) as error:
        console.print(f"[red]The study stopped.[/red] {escape(str(error))}", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("The study was interrupted; the same command goes on with it.")
        return 130
    return 0


def run(out: Path, size: Size, console: Console) -> None:
    """The whole study, its files under ``out``."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    check_settings(out / "study.json", {**size.settings(), "overrides": _overrides(size)})
    stages = Stages(out, console)
    files, model, results = ProblemFiles(out / "problems"), out / "model", out / "results"

    taught = stages.run("teach", lambda: _prepare(size, files, model, console))
    seniors: dict[str, Path] = {}
    logs: dict[str, Path] = {}
    for seed in size.seeds:
        for method in size.methods:
            name = run_name(method, seed)
            paths = Paths(out / "trainings" / name)
            stages.run(
                f"train {name}",
                partial(_train, size, method, seed, model, files, paths, console),
            )
            seniors[name], logs[name] = paths.checkpoint, paths.metrics
    stages.run(
        "evaluate",
        lambda: commands.evaluate(size, model, seniors, files.benchmarks, results),
    )
    stages.run("compare", lambda: commands.compare(size, results, out / "tables"))
    stages.run("report", lambda: commands.report(size, results, logs, out / "report"))
    written = write_summary(out, size, float(taught["pass_rate"]), stages.seconds)
    console.print(
        f"Done in {(time.monotonic() - began) / 60:.1f} minutes. The tables are in {written}, the "
        f"figures in {out / 'report' / 'index.html'}.",
        highlight=False,
    )


def _prepare(size: Size, files: ProblemFiles, model: Path, console: Console) -> dict[str, Any]:
    """The problems, and the model that every training starts from, which is the junior."""
    held_out = held_out_problems(size)
    validation = validation_problems(size, held_out)
    write_problems(files, size, held_out, validation)
    return {"pass_rate": teach(size.lesson, [*held_out, *validation], model, console)}


def _train(
    size: Size,
    method: str,
    seed: int,
    model: Path,
    files: ProblemFiles,
    paths: Paths,
    console: Console,
) -> dict[str, Any]:
    """One training with verl: methods differ in their overrides alone, seeds in theirs alone."""
    training = replace(size.training, seed=seed)
    last: list[float] = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("Starting verl", total=training.steps, state="")

        def on_step(step: int, metrics: Metrics) -> None:
            if TRAINING_REWARD in metrics:
                last.append(float(metrics[TRAINING_REWARD]))
            state = f"reward {last[-1]:.3f}" if last else ""
            bar.update(task, description="Training", completed=step, state=state)
            if not console.is_terminal:  # a log file shows no bar
                console.print(f"Step {step} of {training.steps}: {state}.", highlight=False)

        train(model, files.train, files.validation, paths, training,
              [*METHODS[method], *validation_overrides(size.validate_every)], on_step)  # fmt: skip
    return {"first_reward": last[0], "last_reward": last[-1]}


def _overrides(size: Size) -> dict[str, Any]:
    return {method: list(METHODS[method]) for method in size.methods}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="folder for all files")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the smallest: it runs through, and learns nothing",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
