"""The demo: train one model with plain GRPO and in tandem, and see who can follow the results.

Runs on two CPU cores, without a GPU and without a network::

    python examples/demo/run.py [--steps N] [--out runs/demo]

It teaches three small models word problems in two languages (``pair.py``), trains the senior twice
from one start, measures both by ``tandem eval``, and writes a table, a page and a picture.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pair
from evaluation import GRPO, TANDEM, Score, markdown, write_scores
from folder import claimed
from measures import (
    PLACES,
    RESPONSES,
    TAUGHT,
    Answers,
    scores_of,
    table,
    verdict,
)
from page import write_page
from picture import write_picture
from rich import box
from rich.table import Table
from stages import (
    CONSOLE,
    TANDEM_COMMAND,
    Plan,
    check_tandem,
    curve,
    exit_status,
    heartbeat,
    meanwhile,
    open_page,
    run_program,
    shell_line,
    unfinished,
    write_problems,
)
from train import (
    IN_TANDEM,
    METRICS,
    TANDEM_SETTINGS,
    Metrics,
    Training,
    end_processes,
    read_metrics,
    train,
)

HELD_OUT = 100
"""Of the problems' numbers: nothing taught or trained on has these four."""
EVALUATION_PROBLEMS = 200
NUMBERS_SEED, EVALUATION_SEED, TRAINING_SEED, FACTS_SEED = 11, 12, 13, 1000

STEPS = {GRPO: 8, TANDEM: 24}
"""A step in tandem trains on fewer words. After 16 steps without :data:`ALONE`, tandem was behind
alone in two seeds of three."""
ALONE = 0.25
"""The share of the responses in tandem that the senior writes from beginning to end. Without, seed
8's senior solved 64.0% alone after 24 steps; with it 73.5%, and GRPO's 70.5%."""
STEP_SECONDS = "timing_s/step"
START_S, STEP_S = 200.0, {GRPO: 6.0, TANDEM: 11.0}
"""Seconds until verl's first step, and of a step, on two idle cores."""
OTHERS = ("junior", "reader")
"""Who continues a senior."""
SIZES = Training(
    learning_rate=5e-4,
    max_prompt_length=64,
    max_response_length=pair.BOXED + 4,
    save_every=4,
    seed=10,
)


def main() -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for all files")
    parser.add_argument(
        "--steps",
        type=int,
        default=STEPS[TANDEM],
        help=f"training steps in tandem ({STEPS[TANDEM]}); plain GRPO takes a third of them",
    )
    parser.add_argument(
        "--seed", type=int, default=SIZES.seed, help="one seed for teaching and training"
    )
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps: at least 1")
    out = options.out.resolve()
    return exit_status(lambda: run(out, options.seed, options.steps), out)


def run(out: Path, seed: int, steps: int) -> None:
    """The whole demo: whatever an earlier, stopped one finished in this folder is kept."""
    started = time.monotonic()
    demo = Demo(out, replace(SIZES, seed=seed, steps=steps))
    with claimed(out, demo.options) as is_resumed:
        if is_resumed:
            CONSOLE.print(
                f"Resuming the demo in {out}; to start anew, remove that folder.", soft_wrap=True
            )
        for method in STEPS:
            end_processes(demo.folder(method))  # of a demo that was killed
        end_processes(out)
        demo.teach()
        answers = {TAUGHT: demo.answers(TAUGHT)}
        scores = demo.scores(answers[TAUGHT])
        for method in STEPS:
            demo.train(method)
            answers[method] = demo.answers(method)
            scores += demo.scores(answers[method])
        del answers[TAUGHT]
        write_scores(out / "scores.jsonl", scores)
        show(scores, out, {method: demo.minutes(method) for method in STEPS})
        write_page(out / "demo.html", scores, answers, ALONE)
        write_picture(out / "demo.svg", scores, answers)
        minutes = (time.monotonic() - started) / 60
        CONSOLE.print(
            f"Done in {minutes:.1f} minutes. Open {(out / 'demo.html').as_uri()}", soft_wrap=True
        )
        for line in next_commands(demo):
            CONSOLE.print(line, soft_wrap=True, markup=False)


@dataclass(frozen=True)
class Demo:
    """The stages, each in files of its own below ``out``; a finished one is not repeated."""

    out: Path
    training: Training
    """Of tandem; GRPO's is shorter."""

    @property
    def options(self) -> dict[str, Any]:
        """All that its models, problems and rows follow from: no other demo may resume it."""
        return {
            "pair": list(pair.SHARES),
            "senior": asdict(pair.SENIOR),
            "junior": asdict(pair.JUNIOR),
            "problems": [EVALUATION_PROBLEMS, HELD_OUT, NUMBERS_SEED, EVALUATION_SEED],
            "training_problems": TRAINING_SEED,
            "facts": FACTS_SEED,
            "responses": RESPONSES,
            "alone": ALONE,
            "lengths": [STEPS[GRPO], STEPS[TANDEM]],
            **asdict(self.training),
        }

    def folder(self, method: str) -> Path:
        """Of a training."""
        return self.out / method.lower()

    def model(self, name: str) -> Path:
        """Of a taught model: senior, junior or reader."""
        return self.out / "models" / name

    def senior(self, name: str) -> Path:
        """As it was taught, or after a training."""
        return self.model("senior") if name == TAUGHT else self.folder(name) / "checkpoint"

    def length(self, method: str) -> Training:
        """A method's training: of the same length in relation to the other's."""
        steps = -(-self.training.steps * STEPS[method] // STEPS[TANDEM])
        return replace(self.training, steps=steps)

    @cached_property
    def plan(self) -> Plan:
        """The stages, by their names."""
        seconds = {f"Teaching the {name}": 100.0 for name in ("senior", "junior", "reader")}
        for name in (TAUGHT, *STEPS):
            if name != TAUGHT:
                steps = self.length(name).steps
                seconds[f"Training with verl, {name}"] = START_S + STEP_S[name] * steps
            seconds |= {f"Evaluating {name} with the {other}": 45.0 for other in OTHERS}
        return Plan(seconds)

    @cached_property
    def numbers(self) -> tuple[list[pair.Numbers], list[pair.Numbers]]:
        """(to teach and to train on, held out)."""
        return pair.split_numbers(HELD_OUT, NUMBERS_SEED)

    @cached_property
    def held_out(self) -> list[pair.Story]:
        """The problems that are evaluated."""
        return pair.draw_stories(EVALUATION_PROBLEMS, EVALUATION_SEED, self.numbers[1])

    @cached_property
    def files(self) -> dict[str, Path]:
        """The problems of training and evaluation, as verl and ``tandem eval`` read them."""
        count = self.training.steps * self.training.prompts
        stories = {
            "training": pair.draw_stories(count, TRAINING_SEED, self.numbers[0]),
            "evaluation": self.held_out,
        }
        return {
            name: write_problems(
                [story.problem for story in part], self.out / "data" / name, pair.PROMPT
            )
            for name, part in stories.items()
        }

    def teach(self) -> None:
        """The three models, from the same misconceptions."""
        seed = self.training.seed
        facts = pair.draw_facts(pair.SHARES, FACTS_SEED + seed)
        tokenizer = None
        for name, lesson in pair.lessons(seed).items():
            if self.model(name).exists():
                continue
            self.plan.begin(f"Teaching the {name}")
            if tokenizer is None:
                tokenizer = pair.make_tokenizer(
                    pair.texts(pair.lessons(seed)["senior"], facts, self.numbers[0])
                )
            taught = pair.texts(lesson, facts, self.numbers[0])
            place = unfinished(self.model(name))
            pair.teach(lesson, taught, tokenizer, place)
            place.rename(self.model(name))

    def train(self, method: str) -> None:
        """One training by verl: plain GRPO, or the same with the flag."""
        folder = self.folder(method)
        folder.mkdir(exist_ok=True)
        is_tandem = method == TANDEM
        own = {"alone": ALONE, "junior": f"'{self.model('junior')}'"}
        overrides = [*IN_TANDEM, *(f"{TANDEM_SETTINGS}.{name}={own[name]}" for name in own)]
        training = self.length(method)
        page = open_page(folder, self.model("senior")) if is_tandem else None
        self.plan.begin(f"Training with verl, {method}")
        with heartbeat(training.steps, method) as beat:

            def on_step(step: int, metrics: Metrics) -> None:
                beat(step, metrics)
                if page:
                    page.update()

            train(
                self.model("senior"),
                self.files["training"],
                folder,
                training,
                overrides if is_tandem else [],
                on_step,
            )
        if page:
            check_tandem(read_metrics(folder / METRICS))
            page.finish()

    def minutes(self, method: str) -> float:
        """That all steps of a training took, and what verl starts in the first of them."""
        records = read_metrics(self.folder(method) / METRICS)
        return sum(curve(records, STEP_SECONDS).values()) / 60

    def answers(self, name: str) -> Answers:
        """A senior's evaluations by ``tandem eval``, alone and with either of the others."""
        for other in OTHERS:
            self._evaluate(name, other)
        return Answers(self.out / "evaluation", name, self.model("senior"), self.held_out)

    def scores(self, answers: Answers) -> list[Score]:
        """All rows of a senior."""
        name = answers.senior
        steps = 0 if name == TAUGHT else self.length(name).steps
        scores = scores_of(answers, steps, self.training.seed)
        CONSOLE.print(
            f"{name}: "
            + ", ".join(f"{score.authors} {score.rates.mean():.1%}" for score in scores)
            + ".",
            soft_wrap=True,
        )
        return scores

    def _evaluate(self, name: str, other: str) -> None:
        """In one engine."""
        training = self.training
        engine = ("dtype=float32", f"max_model_len={training.length}", "max_num_seqs=256")
        engine += ("gpu_memory_utilization=0.1", "enforce_eager=true")
        schedules = ("solo", "sentence") if other == "junior" else ("sentence",)
        arguments = [
            ("--senior", f"{name}={self.senior(name)}"),
            ("--junior", f"{other}={self.model(other)}"),
            ("--benchmark", f"problems={self.files['evaluation']}"),
            ("--out", self.out / "evaluation"),
            ("--team-n", RESPONSES),
            ("--temperature", 1.0),
            ("--top-p", 1.0),
            ("--seed", training.seed),
            ("--max-tokens", training.max_response_length),
            *(("--schedule", schedule) for schedule in schedules),
            *(("--handover", place) for place in PLACES),
            *(("--engine", setting) for setting in engine),
        ]
        flat = [part for option in arguments for part in option]
        stage = f"Evaluating {name} with the {other}"
        self.plan.begin(stage)
        with meanwhile(stage):
            log = self.out / f"evaluation-{name}-{other}.log"
            run_program("eval", "handoff", *flat, log=log, out=self.out)


def show(scores: Sequence[Score], out: Path, minutes: Mapping[str, float]) -> None:
    """The table, printed and as ``results.md``; minutes: of each method's steps."""
    rows = table(scores)
    lines = [*markdown(rows), "", *verdict(scores)]
    (out / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    heading, *body = rows
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, name in enumerate(heading):
        two_lines = name.replace("after ", "after\n").replace(" - ", "\n- ")  # for 80 columns
        shown.add_column(two_lines, justify="right" if place else "left", no_wrap=True)
    for row in body:
        shown.add_row(*row)
    CONSOLE.print(shown)
    steps = {score.trained: score.steps for score in scores}
    CONSOLE.print(
        f"{EVALUATION_PROBLEMS} problems of numbers that neither teaching nor training has seen, "
        f"{RESPONSES} samples each at temperature 1; differences in points, ± one standard error "
        f"over problems. The price: {steps[TANDEM]} steps in tandem ({minutes[TANDEM]:.1f} "
        f"minutes), {steps[GRPO]} of GRPO ({minutes[GRPO]:.1f} minutes).",
        soft_wrap=True,
    )
    for line in verdict(scores):
        CONSOLE.print(line, soft_wrap=True)


def next_commands(demo: Demo) -> Iterator[str]:
    """What to look at and to try next, line by line."""
    page = demo.folder(TANDEM) / "rollouts.html"
    yield f"Every response of the tandem training, by author: {page}"
    yield "Derive again who wrote each token, and compare it with what was recorded:"
    yield shell_line(TANDEM_COMMAND, "replay", demo.folder(TANDEM) / "rollouts")
    yield "Every response of the evaluations, side by side:"
    yield shell_line(TANDEM_COMMAND, "view", demo.out / "evaluation" / TANDEM)


if __name__ == "__main__":
    sys.exit(main())
