"""The demo: teach a small model, train it in tandem with verl, show what changed.

Runs on two CPU cores, without a GPU and without a network::

    python examples/demo/run.py [--problems FILE] [--steps N] [--out runs/demo] [--solo]

With ``--real`` the model is SmolLM2-135M-Instruct (``examples/real_model.py``), and the problems
are sums of two one-digit numbers from reasoning-gym.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from data import Row, make_row, read_rows, split_rows, write_parquet
from evaluate import EvaluationError, Sampling, evaluate
from model import Lesson, encode_messages, teach
from next_steps import next_commands, write_page
from problems import draw_distinct
from report import (
    PROBABILITY_GAP,
    TRAINING_REWARD,
    Metrics,
    ReportError,
    before_and_after,
    check_tandem,
    curve,
    draw_curves,
    gather_rollouts,
    how_it_reads,
    show_response,
    steps_table,
)
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from train import MEASURES, REAL, TANDEM, Paths, Training, TrainingError, read_metrics, train
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tandem_plugin import Vocabulary
from tandem_plugin.errors import DataError
from tandem_plugin.lab.data import read_problems
from tandem_plugin.progress import ShownProgress, waiting

EVALUATION_PROBLEMS = 256
LONGEST_PROMPT = 512
EVALUATION_SEED, TRAINING_SEED = 11, 13
SUMS = "reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=1,count=600,seed=2"
REAL_EVALUATION_PROBLEMS = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        run(
            options.out.resolve(),
            options.problems,
            console,
            real=options.real,
            solo=options.solo,
            seed=options.seed,
            steps=options.steps,
        )
    except (DataError, EvaluationError, TrainingError, ReportError) as error:
        console.print(f"[red]The demo stopped.[/red] {escape(str(error))}", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("The demo was interrupted; nothing of it runs any more.")
        return 130
    return 0


def run(
    out: Path,
    problems: Path | None,
    console: Console,
    *,
    real: bool,
    solo: bool,
    seed: int,
    steps: int | None,
) -> None:
    """The whole demo, its files under ``out``; ``solo`` trains the senior without the junior."""
    started = time.monotonic()
    paths = Paths(out)
    out.mkdir(parents=True, exist_ok=True)
    given = None if problems is None else read_rows(problems)

    model = out / "model"
    training = replace(REAL if real else Training(), seed=seed)
    training = replace(training, steps=steps or training.steps)
    if real:
        _get_real_model(model, console)
        train_rows, evaluation_rows = _sums()
    else:
        held_out = draw_distinct(EVALUATION_PROBLEMS, EVALUATION_SEED)
        rate = teach(Lesson(seed=seed), held_out, model, console)
        console.print(f"The model solves {rate:.1%} of the problems it was not taught on.")
        kept_back = frozenset(problem.question for problem in held_out)
        drawn = draw_distinct(training.steps * training.prompts, TRAINING_SEED, without=kept_back)
        train_rows, evaluation_rows = (
            [make_row(one.question, one.answer) for one in some] for some in (drawn, held_out)
        )
    if given is not None:
        tokenizer = AutoTokenizer.from_pretrained(model)
        train_rows, evaluation_rows = split_rows(
            _short_enough(given, tokenizer, console), EVALUATION_PROBLEMS
        )
        training = _fitted(training, train_rows, evaluation_rows, tokenizer)
    train_file, evaluation_file = (
        out / "data" / "train.parquet",
        out / "data" / "evaluation.parquet",
    )
    write_parquet(train_rows, train_file, "train")
    write_parquet(evaluation_rows, evaluation_file, "evaluation")

    sampling = Sampling(
        max_prompt_length=training.max_prompt_length,
        max_response_length=training.max_response_length,
        seed=seed,
    )
    evaluations = [(0, _evaluate(model, model, evaluation_file, paths, 0, sampling, console))]
    with _progress(console) as bar:
        task = bar.add_task("Starting verl", total=training.steps, state="")

        def on_step(step: int, metrics: Metrics) -> None:
            bar.update(task, description="Training", completed=step, state=_state(metrics))
            if not console.is_terminal:  # a log file shows no bar
                console.print(f"Step {step} of {training.steps}: {_state(metrics)}.")

        overrides = [] if solo else [TANDEM, MEASURES]
        senior = train(model, train_file, evaluation_file, paths, training, overrides, on_step)
    rates = _evaluate(senior, model, evaluation_file, paths, training.steps, sampling, console)
    evaluations.append((training.steps, rates))
    _report(paths, evaluations, solo, console)
    console.print(f"Done in {(time.monotonic() - started) / 60:.1f} minutes; see {out}.")
    page = None if solo else write_page(paths)
    for line in next_commands(paths, training, page, real):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _get_real_model(folder: Path, console: Console) -> None:
    """Gets SmolLM2 and teaches it to box an answer, in a process that gives its memory back."""
    program = Path(__file__).resolve().parents[1] / "real_model.py"
    getting = "Getting SmolLM2-135M-Instruct and teaching it to box an answer"
    with console.status(getting), waiting(getting, console):
        command = [sys.executable, str(program), str(folder), "--taught", "5"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise TrainingError(ended.stderr.strip().splitlines()[-1])
    console.print(ended.stdout.strip(), markup=False, highlight=False)


def _sums() -> tuple[list[Row], list[Row]]:
    """(training, evaluation) rows: different sums and differences of two one-digit numbers."""
    problems = read_problems(SUMS).problems
    rows = list({one.text: Row(tuple(one.messages), one.golds) for one in problems}.values())
    return rows[REAL_EVALUATION_PROBLEMS:], rows[:REAL_EVALUATION_PROBLEMS]


def _evaluate(
    senior: Path,
    junior: Path,
    data: Path,
    paths: Paths,
    step: int,
    sampling: Sampling,
    console: Console,
) -> dict[str, float]:
    evaluating = f"Evaluating the senior alone and the team, step {step}"
    with console.status(evaluating), waiting(evaluating, console):
        rates = evaluate(senior, junior, data, paths.evaluation(step), sampling)
    told = ", ".join(f"{name} {rate:.1%}" for name, rate in rates.items())
    console.print(f"Evaluation problems solved at step {step}: {told}.")
    return rates


def _report(
    paths: Paths, evaluations: list[tuple[int, dict[str, float]]], solo: bool, console: Console
) -> None:
    records = read_metrics(paths.metrics)
    rollouts = gather_rollouts(paths.training_rollouts, paths.rollouts)
    if not solo:
        check_tandem(records, rollouts)
    draw_curves(records, evaluations, paths.out / "curves.png", solo=solo)
    console.print(steps_table(records, evaluations))
    show_response(rollouts, Vocabulary.from_path(paths.checkpoint), console)
    gap = curve(records, PROBABILITY_GAP, "gap").points
    if gap:
        console.print(
            f"\nEngine and trainer agree on every trained token's probability to within "
            f"{max(value for _, value in gap):.1e}.",
            highlight=False,
        )
    for line in before_and_after(evaluations) + how_it_reads(records):
        console.print(f"[bold]{line}[/bold]", highlight=False)


def _short_enough(
    rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, console: Console
) -> list[Row]:
    """The rows whose prompt the demo's small model can take."""
    kept = [row for row in rows if len(encode_messages(row.messages, tokenizer)) <= LONGEST_PROMPT]
    if len(kept) < len(rows):
        console.print(
            f"{len(rows) - len(kept)} of {len(rows)} problems have prompts of more than "
            f"{LONGEST_PROMPT} tokens and are left out."
        )
    return kept


def _fitted(
    training: Training,
    train_rows: Sequence[Row],
    evaluation_rows: Sequence[Row],
    tokenizer: PreTrainedTokenizerBase,
) -> Training:
    """The training with lengths and batch that fit the user's problems."""
    longest = max(
        len(encode_messages(row.messages, tokenizer)) for row in [*train_rows, *evaluation_rows]
    )
    return replace(
        training,
        prompts=min(training.prompts, len(train_rows)),
        max_prompt_length=max(training.max_prompt_length, longest),
    )


def _state(metrics: Metrics) -> str:
    """One step in a few words."""
    return f"reward {metrics[TRAINING_REWARD]:.3f}" if TRAINING_REWARD in metrics else ""


def _progress(console: Console) -> ShownProgress:
    return ShownProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console,
        transient=False,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--problems", type=Path, help="your own .jsonl, .json or .parquet instead of generated ones"
    )
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
