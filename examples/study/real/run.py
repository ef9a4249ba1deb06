"""The real part: verl's trainer on the light part's first pair, one seed a method."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from light.pairs import SENIOR, Problems, model_folder
from light.size import LightSize
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from stages import Stages

import real.tandem_commands as commands
from real.demo import TRAINING_REWARD, Metrics, Paths, train
from real.methods import METHODS, validation_overrides
from real.problem_files import ProblemFiles, write_problems
from real.size import RealSize
from tandem_plugin.progress import ShownProgress

__all__ = ["run_real"]


def run_real(out: Path, size: RealSize, light: LightSize, light_out: Path, stages: Stages) -> None:
    """Train, evaluate, compare and report under ``out``; the pair lies where the light part did."""
    files, results = ProblemFiles(out / "problems"), out / "results"
    start = model_folder(light_out, size.pair, SENIOR)
    junior = model_folder(light_out, size.pair, size.exposure)
    trained = size.training.steps * size.training.prompts
    stages.run("problems", lambda: write_problems(files, Problems(light), trained))
    seniors: dict[str, Path] = {}
    logs: dict[str, Path] = {}
    for method in size.methods:
        name = method.replace(" ", "-")
        paths = Paths(out / "trainings" / name)
        stages.run(
            f"train {method}",
            partial(_train, size, method, start, junior, files, paths, stages.console),
        )
        seniors[name], logs[name] = paths.checkpoint, paths.metrics
    stages.run(
        "evaluate",
        lambda: commands.evaluate(size, start, junior, seniors, files.benchmark, results),
    )
    stages.run("compare", lambda: commands.compare(size, results, list(seniors), out / "tables"))
    stages.run("report", lambda: commands.report(size, results, logs, out / "report"))


def _train(
    size: RealSize,
    method: str,
    start: Path,
    junior: Path,
    files: ProblemFiles,
    paths: Paths,
    console: Console,
) -> dict[str, Any]:
    """One training with verl: methods differ in their overrides alone."""
    last: list[float] = []
    with ShownProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console,
        transient=False,
    ) as bar:
        task = bar.add_task("Starting verl", total=size.training.steps, state="")

        def on_step(step: int, metrics: Metrics) -> None:
            if TRAINING_REWARD in metrics:
                last.append(float(metrics[TRAINING_REWARD]))
            state = f"reward {last[-1]:.3f}" if last else ""
            bar.update(task, description="Training", completed=step, state=state)
            if not console.is_terminal:  # a log file shows no bar
                console.print(f"Step {step} of {size.training.steps}: {state}.", highlight=False)

        one = METHODS[method]
        overrides = [*one.settings(junior), *validation_overrides(size.validate_every)]
        train(
            start,
            files.train,
            files.validation,
            paths,
            size.training,
            overrides,
            on_step,
            environment=one.environment(junior),
            modules=[Path(__file__).parent],
        )
    return {"first_reward": last[0], "last_reward": last[-1]}
