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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from model import Lesson, teach
from problems import draw_distinct
from report import TRAINING_REWARD, ReportError, check_tandem, draw_curves, sentences
from rich.console import Console
from train import (
    MEASURES,
    REAL,
    TANDEM,
    Metrics,
    Training,
    TrainingError,
    end_of_log,
    read_metrics,
    train,
)

from tandem_plugin.errors import TandemError
from tandem_plugin.lab.data import Problem, ProblemSet, PromptTemplate, prepare, read_problems
from tandem_plugin.lab.evaluation.results import read_summary, run_folder
from tandem_plugin.progress import waiting

EVALUATION_PROBLEMS = 256
EVALUATION_SEED, TRAINING_SEED = 11, 13
SUMS = "reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=1,count=600,seed=2"
REAL_EVALUATION_PROBLEMS = 64
AUTHORS = {"solo": "senior alone", "word": "team"}
"""Who answers, by the schedule of the evaluation."""
QUESTION = PromptTemplate("{problem}")
"""The model was taught to answer in a box, or the problem asks for it."""
TANDEM_COMMAND = Path(sys.executable).with_name("tandem")
CONSOLE = Console(highlight=False)

Problems = tuple[Sequence[Problem], Sequence[Problem]]
"""(training, evaluation)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        run(options)
    except (TandemError, TrainingError, ReportError) as error:
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
    training, parts = prepare_run(options, out / "model")
    train_file, evaluation_file = (
        write_problems(part, out / "data" / name)
        for name, part in zip(("training", "evaluation"), parts, strict=True)
    )

    def evaluated(step: int, senior: Path) -> tuple[int, dict[str, float]]:
        return step, evaluate(step, senior, evaluation_file, out, training)

    def on_step(step: int, metrics: Metrics) -> None:
        reward = metrics.get(TRAINING_REWARD, float("nan"))
        CONSOLE.print(f"Step {step} of {training.steps}: reward {reward:.3f}.")

    before = evaluated(0, out / "model")
    overrides = [] if options.solo else [TANDEM, MEASURES]
    with meanwhile("Training with verl"):
        senior = train(out / "model", train_file, out, training, overrides, on_step)
    evaluations = [before, evaluated(training.steps, senior)]
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


def write_problems(problems: Sequence[Problem], folder: Path) -> Path:
    """The file that verl reads, and ``tandem eval``."""
    return prepare(ProblemSet("demo", tuple(problems)), "verl", folder, template=QUESTION).files[
        "train"
    ]


def prepare_run(options: argparse.Namespace, model: Path) -> tuple[Training, Problems]:
    """What is trained and on what; the model is put into its folder."""
    training = replace(REAL if options.real else Training(), seed=options.seed)
    training = replace(training, steps=options.steps or training.steps)
    problems = real_problems if options.real else word_problems
    return training, problems(model, training)


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
    program = Path(__file__).resolve().parents[1] / "real_model.py"
    getting = "Getting SmolLM2-135M-Instruct and teaching it to box an answer"
    with meanwhile(getting):
        command = [sys.executable, str(program), str(model), "--taught", "5"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise TrainingError(ended.stderr.strip().splitlines()[-1])
    CONSOLE.print(ended.stdout.strip(), markup=False)
    return sums()


def sums() -> Problems:
    """All sums and differences of two one-digit numbers that were drawn, each once."""
    different = list({one.text: one for one in read_problems(SUMS).problems}.values())
    return different[REAL_EVALUATION_PROBLEMS:], different[:REAL_EVALUATION_PROBLEMS]


def evaluate(
    step: int, senior: Path, data: Path, out: Path, training: Training
) -> dict[str, float]:
    """Pass rates of the senior alone and of the team by `tandem eval`, in one engine.

    Responses are sampled as in training; they stay in ``evaluation/step-N``.
    """
    name = f"step-{step}"
    arguments = {
        "--senior": f"{name}={senior}",
        "--junior": f"junior={out / 'model'}",
        "--benchmark": f"problems={data}",
        "--out": out / "evaluation",
        "--team-n": 2,
        "--temperature": 1,
        "--top-p": 1,
        "--seed": training.seed,
        "--max-tokens": training.max_response_length,
    }
    given = [part for option in arguments.items() for part in option]
    given += [part for schedule in AUTHORS for part in ("--schedule", schedule)]
    for setting in (
        "dtype=float32",
        f"max_model_len={training.length}",
        "max_num_seqs=256",
        "gpu_memory_utilization=0.1",
        "enforce_eager=true",
    ):
        given += ["--engine", setting]
    what = f"Evaluating the senior alone and the team, step {step}"
    with meanwhile(what):
        log = out / f"evaluation-{step}.log"
        run_program("eval", "handoff", *given, log=log)
    rates = {}
    for schedule, authors in AUTHORS.items():
        folder = run_folder(out / "evaluation", "handoff", name, "junior", schedule)
        metrics = read_summary(folder / "summary.json").content["metrics"]["problems"]
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


def _parser() -> argparse.ArgumentParser:
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
    return parser


if __name__ == "__main__":
    sys.exit(main())
