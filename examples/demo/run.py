"""The demo: teach a small model, train it in tandem with verl, show what changed.

Runs on two CPU cores, without a GPU and without a network::

    python examples/demo/run.py [--steps N] [--out runs/demo] [--solo]

With ``--real`` the model is SmolLM2-135M-Instruct (``examples/real_model.py``), and the problems
are sums of two one-digit numbers from reasoning-gym.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import real_model
from matplotlib.figure import Figure
from model import Lesson, draw_distinct, teach
from rich.console import Console
from train import REAL, Metrics, Training, TrainingError, end_of_log, read_metrics, train

from tandem_plugin.errors import TandemError
from tandem_plugin.lab.data import Problem, ProblemSet, PromptTemplate, prepare
from tandem_plugin.lab.evaluation.results import read_summary, run_folder
from tandem_plugin.progress import waiting

EVALUATION_PROBLEMS = 256
EVALUATION_SEED, TRAINING_SEED = 11, 13
REAL_EVALUATION_PROBLEMS = 64
AUTHORS = {"solo": "senior alone", "word": "team"}
"""Who answers, by the schedule of the evaluation."""
REAL_PROMPT = PromptTemplate("{problem}")
"""The sum alone, as the real model was taught."""
TANDEM_COMMAND = Path(sys.executable).with_name("tandem")
CONSOLE = Console(highlight=False)
TRAINING_REWARD = "critic/score/mean"
JUNIOR_CROSS_ENTROPY = "tandem/junior_cross_entropy"
OVERLAP = "tandem/overlap"

Problems = tuple[Sequence[Problem], Sequence[Problem]]
"""(training, evaluation)."""

Records = Sequence[tuple[int, Mapping[str, Any]]]
"""(step, metrics) in order; of evaluations, the pass rates by who answers."""


def main() -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for all files")
    parser.add_argument("--solo", action="store_true", help="train the senior without a junior")
    parser.add_argument(
        "--steps", type=int, help=f"training steps ({Training().steps}, or {REAL.steps})"
    )
    parser.add_argument(
        "--real", action="store_true", help="a real language model of 135 million parameters"
    )
    parser.add_argument("--seed", type=int, default=7, help="one seed for teaching and training")
    options = parser.parse_args()
    try:
        run(options)
    except (TandemError, TrainingError) as error:
        CONSOLE.print("The demo stopped.", style="red")
        CONSOLE.print(str(error), markup=False)
        return 1
    except KeyboardInterrupt:
        CONSOLE.print("The demo was interrupted; nothing of it runs any more.")
        return 130
    return 0


def run(options: argparse.Namespace) -> None:
    """The whole demo; ``options.solo`` trains the senior without the junior."""
    started = time.monotonic()
    out: Path = options.out.resolve()
    for folder in ("data", "evaluation"):
        shutil.rmtree(out / folder, ignore_errors=True)
    training = replace(REAL if options.real else Training(), seed=options.seed)
    training = replace(training, steps=options.steps or training.steps)
    problems = real_problems if options.real else word_problems
    parts = problems(out / "model", training)
    train_file, evaluation_file = (
        write_problems(part, out / "data" / name, REAL_PROMPT if options.real else None)
        for name, part in zip(("training", "evaluation"), parts, strict=True)
    )

    def on_step(step: int, metrics: Metrics) -> None:
        reward = metrics.get(TRAINING_REWARD, float("nan"))
        CONSOLE.print(f"Step {step} of {training.steps}: reward {reward:.3f}.")

    before = evaluate(0, out / "model", evaluation_file, out, training)
    with meanwhile("Training with verl"):
        senior = train(out / "model", train_file, out, training, not options.solo, on_step)
    after = evaluate(training.steps, senior, evaluation_file, out, training)
    evaluations = [(0, before), (training.steps, after)]
    records = read_metrics(out / "metrics.jsonl")
    if not options.solo:
        check_tandem(records)
        run_program("view", out / "rollouts", "--tokenizer", senior, log=out / "view.log")
    draw_curves(records, evaluations, out / "curves.png")
    for line in sentences(records, evaluations):
        CONSOLE.print(line, style="bold")
    CONSOLE.print(f"Done in {(time.monotonic() - started) / 60:.1f} minutes; see {out}.")
    for line in next_commands(out, options):
        CONSOLE.print(line, soft_wrap=True, markup=False)


def write_problems(
    problems: Sequence[Problem], folder: Path, template: PromptTemplate | None
) -> Path:
    """The file that verl reads, and ``tandem eval``; without a template they ask for a box."""
    named = ProblemSet("demo", tuple(problems))
    return prepare(named, "verl", folder, template=template).files["train"]


@contextmanager
def meanwhile(what: str) -> Iterator[None]:
    """While something takes long: shown on a terminal, and in a log now and then."""
    with CONSOLE.status(what), waiting(what, CONSOLE):
        yield


def word_problems(model: Path, training: Training) -> Problems:
    """Generated ones, and a model in the folder ``model`` that was taught others of their kind."""
    held_out = draw_distinct(EVALUATION_PROBLEMS, EVALUATION_SEED)
    teach(Lesson(seed=training.seed), held_out, model)
    drawn = draw_distinct(
        training.steps * training.prompts,
        TRAINING_SEED,
        without=frozenset(problem.question for problem in held_out),
    )
    return [one.problem for one in drawn], [one.problem for one in held_out]


def real_problems(model: Path, training: Training) -> Problems:
    """Different sums of two one-digit numbers, and SmolLM2, taught to box an answer.

    That is done in a process of its own, which gives its memory back.
    """
    command = [sys.executable, str(real_model.__file__), str(model), "--taught", "5"]
    with meanwhile("Getting SmolLM2-135M-Instruct and teaching it to box an answer"):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise TrainingError(ended.stderr.strip().splitlines()[-1])
    CONSOLE.print(ended.stdout.strip(), markup=False)
    return real_model.different_sums(REAL_EVALUATION_PROBLEMS)


def evaluate(
    step: int, senior: Path, data: Path, out: Path, training: Training
) -> dict[str, float]:
    """Pass rates of the senior alone and of the team by `tandem eval`, in one engine.

    Responses are sampled as in training; they stay in ``evaluation/step-N``.
    """
    name = f"step-{step}"
    engine = ("dtype=float32", f"max_model_len={training.length}", "max_num_seqs=256")
    engine += ("gpu_memory_utilization=0.1", "enforce_eager=true")
    arguments = [
        ("--senior", f"{name}={senior}"),
        ("--junior", f"junior={out / 'model'}"),
        ("--benchmark", f"problems={data}"),
        ("--out", out / "evaluation"),
        ("--team-n", 2),
        ("--temperature", 1),
        ("--top-p", 1),
        ("--seed", training.seed),
        ("--max-tokens", training.max_response_length),
        *(("--schedule", schedule) for schedule in AUTHORS),
        *(("--engine", setting) for setting in engine),
    ]
    given = [part for option in arguments for part in option]
    with meanwhile(f"Evaluating the senior alone and the team, step {step}"):
        run_program("eval", "handoff", *given, log=out / f"evaluation-{step}.log")
    rates = {}
    for schedule, authors in AUTHORS.items():
        folder = run_folder(out / "evaluation", "handoff", name, "junior", schedule)
        metrics = read_summary(folder / "summary.json").content["metrics"]["problems"]
        if failed := metrics["outcomes"].get("error"):
            raise TrainingError(f"The grader failed on {failed} responses: see {folder}.")
        rates[authors] = float(metrics["pass_at_k"]["1"])
    shown = ", ".join(f"{authors} {rate:.1%}" for authors, rate in rates.items())
    CONSOLE.print(f"Evaluation problems solved at step {step}: {shown}.")
    return rates


def run_program(*arguments: object, log: Path) -> None:
    """Runs the command `tandem`, what it says in ``log``.

    Raises:
        TrainingError: it failed.
    """
    variables = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    command = [str(part) for part in (TANDEM_COMMAND, *arguments)]
    with log.open("wb") as stream:
        done = subprocess.run(
            command, env=variables, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        raise TrainingError(f"{shlex.join(command)} failed. {end_of_log(log)}")


def next_commands(out: Path, options: argparse.Namespace) -> Iterable[str]:
    """What to look at and to try next, line by line."""
    again = [sys.executable, Path(__file__), *(["--real"] if options.real else [])]
    if options.solo:
        yield "Next, the same in tandem:"
        yield _line(*again, "--out", f"{out}-tandem")
        return
    yield f"Every response of the training, by author: open {out / 'rollouts.html'} in a browser."
    yield "Next, derive again who wrote each token and compare it with what was recorded:"
    yield _line(TANDEM_COMMAND, "replay", out / "rollouts")
    yield "Train without the junior, to compare:"
    yield _line(*again, "--solo", "--out", f"{out}-solo")


def _line(*parts: object) -> str:
    """A command as a shell reads it."""
    return f"  {shlex.join(map(str, parts))}"


def curve(records: Iterable[tuple[int, Mapping[str, Any]]], key: str) -> dict[int, float]:
    """One metric by step, at the steps that have it."""
    return {step: float(metrics[key]) for step, metrics in records if key in metrics}


def check_tandem(records: Records) -> None:
    """Refuses a run that was asked for in tandem and does not show it.

    Raises:
        TrainingError: a tandem metric is missing.
    """
    for key in ("tandem/senior_share", "tandem/spans_per_response", JUNIOR_CROSS_ENTROPY):
        if not curve(records, key):
            raise TrainingError(
                f"The run logged no {key}: it did not train in tandem. Check that tandem-plugin "
                "is installed in the environment of the run, or ask for --solo."
            )


def draw_curves(records: Records, evaluations: Records, path: Path) -> None:
    """Reward, pass rates of evaluations and the junior's cross-entropy over steps, as a PNG."""
    read = curve(records, JUNIOR_CROSS_ENTROPY)
    figure = Figure(figsize=(7, 6), layout="constrained")
    panels = figure.subplots(2 if read else 1, sharex=True, squeeze=False)
    axes = panels[0, 0]
    training = curve(records, TRAINING_REWARD)
    axes.plot(training.keys(), training.values(), color="0.6", label="training reward")
    for authors in evaluations[0][1]:
        rates = curve(evaluations, authors)
        axes.plot(rates.keys(), rates.values(), marker="o", label=f"evaluation, {authors}")
    axes.set(ylabel="mean reward", ylim=(0, 1))
    if read:
        name = "the junior's cross-entropy on the senior's tokens"
        panels[1, 0].plot(read.keys(), read.values(), color="tab:purple", label=name)
        panels[1, 0].set(ylabel="nats per token", ylim=(0, None))
    for axes in panels[:, 0]:
        axes.grid(alpha=0.3)
        axes.legend()
    panels[-1, 0].set_xlabel("step")
    panels[-1, 0].locator_params(axis="x", integer=True)
    figure.savefig(path, dpi=150)


def sentences(records: Records, evaluations: Records) -> list[str]:
    """What changed: the pass rates, and how well the junior predicts what the senior writes.

    The latter are means over a third of the steps at either end, since a step measures some of its
    tokens.
    """
    lines = []
    gap = curve(records, "training/rollout_probs_diff_max")
    if gap:
        lines.append(
            "Engine and trainer agree on every trained token's probability to within "
            f"{max(gap.values()):.1e}."
        )
    (_, before), *_, (_, after) = evaluations
    lines += [
        f"{authors}: {rate:.1%} of the evaluation problems solved before, {after[authors]:.1%} "
        f"after ({100 * (after[authors] - rate):+.1f} points)."
        for authors, rate in before.items()
    ]
    for key, name in (
        (JUNIOR_CROSS_ENTROPY, "The junior's cross-entropy (nats) on what the senior writes"),
        (OVERLAP, "The overlap of both models where the senior writes"),
    ):
        values = list(curve(records, key).values())
        if values:
            few = max(1, len(values) // 3)
            first, last = sum(values[:few]) / few, sum(values[-few:]) / few
            lines.append(f"{name}: {first:.3f} in the first steps, {last:.3f} in the last.")
    return lines


if __name__ == "__main__":
    sys.exit(main())
