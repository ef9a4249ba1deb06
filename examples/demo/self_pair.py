"""A model in tandem with a copy of itself: teach it, train it with verl, show what changed.

Runs on two CPU cores, without a GPU and without a network::

    python examples/demo/self_pair.py [--steps N] [--out runs/self-pair] [--solo]

With ``--real`` the model is SmolLM2-135M-Instruct (``examples/real_model.py``), and the problems
are sums of two one-digit numbers from reasoning-gym.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import real_model
from evaluation import (
    AUTHORS,
    BEFORE,
    DECODINGS,
    GRPO,
    RESULTS,
    TANDEM,
    Decoding,
    Score,
    markdown,
    other_method,
    read_scores,
    table,
    write_scores,
)
from folder import claimed
from matplotlib.figure import Figure
from model import Lesson, draw_distinct, questions, teach
from rich import box
from rich.table import Table
from stages import (
    CONSOLE,
    SMOOTHED,
    TANDEM_COMMAND,
    TRAINING_REWARD,
    Records,
    check_tandem,
    curve,
    exit_status,
    heartbeat,
    meanwhile,
    open_page,
    run_program,
    shell_line,
    smoothed,
    unfinished,
    write_problems,
)
from train import (
    IN_TANDEM,
    REAL,
    RUN_MARK,
    Metrics,
    Training,
    TrainingError,
    end_processes,
    read_metrics,
    train,
)

from tandem_plugin.lab.data import Problem, PromptTemplate
from tandem_plugin.lab.evaluation.results import read_summary, run_folder

EVALUATION_PROBLEMS = 256
EVALUATION_SEED, TRAINING_SEED = 11, 13
REAL_EVALUATION_PROBLEMS = 64
REAL_PROMPT = PromptTemplate("{problem}", instruction="")
"""The sum alone, as the real model was taught."""
Problems = tuple[Sequence[Problem], Sequence[Problem]]
"""(training, evaluation)."""


def main() -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=Path("runs/self-pair"), help="folder for all files"
    )
    parser.add_argument("--solo", action="store_true", help="train the senior without a junior")
    parser.add_argument(
        "--steps", type=int, help=f"training steps ({Training().steps}, or {REAL.steps})"
    )
    parser.add_argument(
        "--real", action="store_true", help="a real language model of 135 million parameters"
    )
    parser.add_argument("--seed", type=int, default=7, help="one seed for teaching and training")
    options = parser.parse_args()
    return exit_status(lambda: run(options), options.out.resolve())


def run(options: argparse.Namespace) -> None:
    """The whole demo; ``options.solo`` trains the senior without the junior."""
    training = replace(REAL if options.real else Training(), seed=options.seed)
    training = replace(training, steps=options.steps or training.steps)
    defining = {"real": options.real, "solo": options.solo, **asdict(training)}
    out: Path = options.out.resolve()
    with claimed(out, defining) as is_resumed:
        if is_resumed:
            CONSOLE.print(
                f"Resuming the demo in {out}; to start anew, remove that folder.", soft_wrap=True
            )
        run_in(out, options, training)


def run_in(out: Path, options: argparse.Namespace, training: Training) -> None:
    """The demo in its folder: whatever an earlier, stopped one finished there is kept."""
    started = time.monotonic()
    end_processes(out)  # of a demo that was killed
    page = None if options.solo else open_page(out, out / "model")
    problems = real_problems if options.real else word_problems
    parts = problems(out / "model", training)
    train_file, evaluation_file = (
        write_problems(part, out / "data" / name, REAL_PROMPT if options.real else None)
        for name, part in zip(("training", "evaluation"), parts, strict=True)
    )

    measured = Evaluation(evaluation_file, out, training)
    scores = measured.before(out / "model")
    method = GRPO if options.solo else TANDEM
    with heartbeat(training.steps, method) as beat:

        def on_step(step: int, metrics: Metrics) -> None:
            beat(step, metrics)
            if page:
                page.update()

        overrides = [] if options.solo else IN_TANDEM
        senior = train(out / "model", train_file, out, training, overrides, on_step)
    scores += measured.after(senior, method)
    write_scores(out / "scores.jsonl", scores)
    records = read_metrics(out / "metrics.jsonl")
    if page:
        check_tandem(records)
        page.finish()
    kept = read_scores(RESULTS / ("sums.jsonl" if options.real else "words.jsonl"))
    show(records, [*scores, *other_method(scores, kept)], method, out)
    CONSOLE.print(f"Done in {(time.monotonic() - started) / 60:.1f} minutes; see {out}.")
    for line in next_commands(out, options):
        CONSOLE.print(line, soft_wrap=True, markup=False)


def word_problems(model: Path, training: Training) -> Problems:
    """Generated ones, and a model in the folder ``model`` that was taught others of their kind.

    What is evaluated is neither taught nor trained on, and what is trained on is not taught.
    """
    lesson = Lesson(seed=training.seed)
    held_out = draw_distinct(EVALUATION_PROBLEMS, EVALUATION_SEED)
    taught = lesson.problems(held_out)
    if not model.exists():
        teach(lesson, taught, unfinished(model))
        unfinished(model).rename(model)
    seen = questions([*held_out, *taught])
    drawn = draw_distinct(training.steps * training.prompts, TRAINING_SEED, without=seen)
    return [one.problem for one in drawn], [one.problem for one in held_out]


def real_problems(model: Path, training: Training) -> Problems:
    """Different sums of two one-digit numbers, and SmolLM2, taught to box an answer.

    That is done in a process of its own, which gives its memory back.
    """
    parts = real_model.different_sums(REAL_EVALUATION_PROBLEMS)
    if model.exists():
        return parts
    command = [sys.executable, str(real_model.__file__), str(unfinished(model)), "--taught", "5"]
    command += ["--held-out", str(REAL_EVALUATION_PROBLEMS), "--seed", str(training.seed)]
    variables = {**os.environ, RUN_MARK: str(model.parent)}
    with meanwhile("Getting SmolLM2-135M-Instruct and teaching it to box an answer"):
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise TrainingError(ended.stderr.strip().splitlines()[-1])
    CONSOLE.print(ended.stdout.strip(), markup=False)
    unfinished(model).rename(model)
    return parts


@dataclass(frozen=True)
class Evaluation:
    """Evaluations of a run by `tandem eval`: responses stay in ``evaluation/TEMPERATURE``."""

    data: Path
    out: Path
    training: Training

    def before(self, model: Path) -> list[Score]:
        """Of the taught model.

        Its team is itself twice, and writes as it does alone.
        """
        alone = [score for one in DECODINGS for score in self._run(BEFORE, 0, model, one, ["solo"])]
        return [*alone, *(replace(score, authors=AUTHORS["word"]) for score in alone)]

    def after(self, senior: Path, method: str) -> list[Score]:
        """Of the trained senior, alone and with its junior."""
        steps = self.training.steps
        return [
            score
            for one in DECODINGS
            for score in self._run(method, steps, senior, one, list(AUTHORS))
        ]

    def _run(
        self, trained: str, steps: int, senior: Path, decoding: Decoding, schedules: Sequence[str]
    ) -> list[Score]:
        """One temperature, in one engine."""
        training, name = self.training, f"step-{steps}"
        out = self.out / "evaluation" / f"temperature-{decoding.temperature:g}"
        engine = ("dtype=float32", f"max_model_len={training.length}", "max_num_seqs=256")
        engine += ("gpu_memory_utilization=0.1", "enforce_eager=true")
        arguments = [
            ("--senior", f"{name}={senior}"),
            ("--junior", f"junior={self.out / 'model'}"),
            ("--benchmark", f"problems={self.data}"),
            ("--out", out),
            ("--team-n", decoding.samples),
            ("--temperature", decoding.temperature),
            ("--top-p", decoding.top_p),
            ("--seed", training.seed),
            ("--max-tokens", training.max_response_length),
            *(("--schedule", schedule) for schedule in schedules),
            *(("--engine", setting) for setting in engine),
        ]
        given = [part for option in arguments for part in option]
        with meanwhile(f"Evaluating {name} at {decoding.name}"):
            log = self.out / f"evaluation-{steps}-{decoding.temperature:g}.log"
            run_program("eval", "handoff", *given, log=log, out=self.out)
        scores = []
        for schedule in schedules:
            folder = run_folder(out, "handoff", name, "junior", schedule)
            summary = read_summary(folder / "summary.json")
            if failed := summary.content["metrics"]["problems"]["outcomes"].get("error"):
                raise TrainingError(f"The grader failed on {failed} responses: see {folder}.")
            solved = tuple(row["correct"] for row in summary.problems["problems"])
            rest = (training.seed, AUTHORS[schedule], decoding.name, decoding.samples, solved)
            scores.append(Score(trained, steps, *rest))
        rates = (f"{one.authors} {one.rates.mean():.1%}" for one in scores)
        CONSOLE.print(f"Solved at {decoding.name}, step {steps}: {', '.join(rates)}.")
        return scores


def next_commands(out: Path, options: argparse.Namespace) -> Iterable[str]:
    """What to look at and to try next, line by line."""
    again = [sys.executable, Path(__file__), *(["--real"] if options.real else [])]
    if options.solo:
        yield "Next, the same in tandem:"
        yield shell_line(*again, "--out", f"{out}-tandem")
        return
    yield f"Every response of the training, by author: open {out / 'rollouts.html'} in a browser."
    yield "Next, derive again who wrote each token and compare it with what was recorded:"
    yield shell_line(TANDEM_COMMAND, "replay", out / "rollouts")
    yield "Train without the junior, to compare:"
    yield shell_line(*again, "--solo", "--out", f"{out}-solo")


def show(records: Records, scores: Sequence[Score], method: str, out: Path) -> None:
    """The table of what changed, printed and as ``results.md``, with the chart ``curves.png``."""
    rows = table(scores)
    (out / "results.md").write_text("\n".join(markdown(rows)) + "\n", encoding="utf-8")
    rewards = curve(records, TRAINING_REWARD)
    draw_curves({method: rewards}, scores, out / "curves.png")
    heading, *others = rows
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, name in enumerate(heading):
        two_lines = name.replace("after ", "after\n").replace(" - ", "\n- ")  # for 80 columns
        shown.add_column(two_lines, justify="right" if place else "left", no_wrap=True)
    for row in others:
        shown.add_row(*row)
    CONSOLE.print(shown)
    problems = len(scores[0].solved)
    CONSOLE.print(
        f"{problems} problems that neither teaching nor training has seen, seed {scores[0].seed}; "
        "2 samples each, greedily 1; at T = 0.6 top-p is 0.95. Rises are in points, ± one standard "
        "error over problems."
    )
    if len({one.trained for one in scores}) == 3:
        other = TANDEM if method == GRPO else GRPO
        CONSOLE.print(f"{other}: an earlier run with the same seed, from the repository.")
    means = list(smoothed(rewards).values())
    if len(means) >= 2 * SMOOTHED:
        who = "team" if method == TANDEM else "alone"
        CONSOLE.print(
            f"Training reward ({who}, T = 1): {means[SMOOTHED - 1]:.3f} in the first {SMOOTHED} "
            f"steps, {means[-1]:.3f} in the last {SMOOTHED}."
        )
    if gap := curve(records, "training/rollout_probs_diff_max"):
        CONSOLE.print(
            "Engine and trainer agree on every trained token's probability to within "
            f"{max(gap.values()):.1e}."
        )


def draw_curves(
    rewards: Mapping[str, Mapping[int, float]], scores: Sequence[Score], path: Path
) -> None:
    """The reward over steps by method; who solves how many problems, before and after."""
    colours = {BEFORE: "0.55", TANDEM: "tab:blue", GRPO: "tab:orange"}
    figure = Figure(figsize=(7, 6), layout="constrained")
    above, below = figure.subplots(2, height_ratios=(2, 3))
    for method, values in rewards.items():
        means = smoothed(values)
        label = f"{method} ({'team' if method == TANDEM else 'senior alone'})"
        above.plot(values.keys(), values.values(), ".", color=colours[method], alpha=0.4)
        above.plot(means.keys(), means.values(), color=colours[method], label=label)
    above.set(xlabel="step (lines: mean of three)", ylabel="training reward, T = 1", ylim=(0, 1))
    above.locator_params(axis="x", integer=True)
    places = [(authors, one.name) for authors in AUTHORS.values() for one in DECODINGS]
    for trained, colour in colours.items():
        found = {(one.authors, one.decoding): one for one in scores if one.trained == trained}
        if found:
            rates = [100 * found[place].rates for place in places]
            errors = [rate.std(ddof=1) / np.sqrt(len(rate)) for rate in rates]
            offset = {BEFORE: 0, TANDEM: -0.12, GRPO: 0.12}[trained]
            below.errorbar(
                [rate.mean() for rate in rates],
                np.arange(len(places)) + offset,
                xerr=errors,
                fmt="o",
                color=colour,
                label=trained if trained == BEFORE else f"after {trained}",
            )
    below.set(xlabel="evaluation problems solved (%), ± standard error", xlim=(0, 100))
    below.set_yticks(range(len(places)), [", ".join(place) for place in places])
    below.invert_yaxis()
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
