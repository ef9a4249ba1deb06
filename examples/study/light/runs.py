"""Every teaching and training of the study, and what is measured of it."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from light.grpo import GRPO, HALF, TANDEM, Method, Optimization, train
from light.model import LanguageModel, load_model, save_model
from light.responses import Evaluation
from light.study import Run, read_note
from light.task import Problem, Task, draw_facts, draw_problems, teach
from tandem_plugin.seeds import derive_seed

METHODS = (GRPO, HALF, TANDEM)
TAUGHT = "as taught"


@dataclass(frozen=True, slots=True)
class LightSize:
    """first: the number of the first model, which seeds its misconceptions, its teaching and its
    trainings. samples: responses to each problem that is evaluated."""

    first: int = 41
    lesson: int = 1500
    misconceived: float = 0.25
    training: Optimization = field(
        default_factory=lambda: Optimization(
            steps=300, prompts=16, learning_rate=3e-5, temperature=0.6
        )
    )
    evaluate_every: int = 60
    problems: int = 400
    samples: int = 4
    training_problems: int = 20_000


WHOLE = LightSize()
QUICK = LightSize(
    lesson=20,
    training=Optimization(steps=2, prompts=2, group=2, temperature=0.6),
    evaluate_every=1,
    problems=8,
    samples=2,
    training_problems=50,
)
"""Seconds: everything runs, and nothing is learnt."""


@dataclass(frozen=True, slots=True)
class Training(Run):
    """One training of a taught model beside its frozen self; without a method the model is taught,
    and measured beside itself."""

    model: int
    method: Method | None = None

    @property
    def name(self) -> str:
        return f"model {self.model} {TAUGHT if self.method is None else self.method.name}"


def trainings(size: LightSize, models: int) -> list[list[Training]]:
    """The runs of each model, in order: its teaching, then every method."""
    numbers = range(size.first, size.first + models)
    return [[Training(number, method) for method in (None, *METHODS)] for number in numbers]


@functools.lru_cache(maxsize=2)
def problem_sets(size: LightSize) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """(test, validation, training), drawn once in a process; no problem is in two of them."""
    test = draw_problems(size.problems, 17)
    validation = draw_problems(size.problems, 19, test)
    kept_out = frozenset([*test, *validation])
    return test, validation, draw_problems(size.training_problems, 23, kept_out)


def run_one(out: Path, size: LightSize, run: Training) -> Mapping[str, Any]:
    """Teach or train, and measure: the row of a run.

    Its points are its checkpoints: accuracy alone on the validation problems, by which runs are
    matched; accuracy on them as the method writes in training, by which its best checkpoint is
    chosen; the trained tokens so far; and every measure on the test problems.
    """
    started = time.monotonic()
    points = [_taught(out, size, run)] if run.method is None else _trained(out, size, run)
    return {
        "model": run.model,
        "method": TAUGHT if run.method is None else run.method.name,
        "seconds": round(time.monotonic() - started),
        "points": [{name: _short(value) for name, value in point.items()} for point in points],
    }


def rows(out: Path, runs: Iterable[Training]) -> list[dict[str, Any]]:
    """Of every run that is done."""
    return [read_note(run.note(out)) for run in runs if run.note(out).exists()]


def _short(value: float) -> float:
    """Six decimals: a response more or less is 0.0006 of an accuracy."""
    return value if isinstance(value, int) else round(value, 6)


def _taught(out: Path, size: LightSize, run: Training) -> dict[str, float]:
    """A model with misconceptions of its own, and what it measures beside itself."""
    task, (test, validation, _) = Task(), problem_sets(size)
    file = _model_file(out, run.model)
    if not file.exists():
        facts = draw_facts(1000 + run.model, (size.misconceived, size.misconceived))
        kept_out = frozenset([*test, *validation])
        save_model(teach(task, facts, size.lesson, seed=run.model, without=kept_out), file)
    model = load_model(file)
    counts = _junior_counts(task, size, run.model, model)
    return {
        "step_number": 0,
        "trained_tokens": 0,
        **_measure(task, size, run, model, model, counts),
    }


def _trained(out: Path, size: LightSize, run: Training) -> list[dict[str, float]]:
    task, problems = Task(), problem_sets(size)[2]
    start = load_model(_model_file(out, run.model))
    counts = _junior_counts(task, size, run.model, start)
    points, rewards, tokens = [], [], 0
    assert run.method is not None
    for step in train(task, start, run.method, problems, run.model, size.training):
        rewards.append(step.reward)
        tokens += step.trained
        if step.number % size.evaluate_every == 0 or step.number == size.training.steps:
            measured = _measure(task, size, run, step.senior, start, counts)
            counted = {"step_number": step.number, "trained_tokens": tokens}
            points.append({**counted, "reward": float(np.mean(rewards)), **measured})
            rewards.clear()
    return points


def _model_file(out: Path, model: int) -> Path:
    return out / "models" / f"start-{model}.pt"


def _junior_counts(task: Task, size: LightSize, number: int, model: LanguageModel) -> np.ndarray:
    """How often the junior writes each token, drawn with other random numbers than the senior's:
    one model twice shows the noise of drift."""
    alone = Evaluation(
        task,
        problem_sets(size)[0],
        derive_seed(number, "junior"),
        size.samples,
        size.training.temperature,
    )
    return np.array(alone.alone(model)[0]["token_counts"])


def _measure(
    task: Task,
    size: LightSize,
    run: Training,
    senior: LanguageModel,
    junior: LanguageModel,
    counts: np.ndarray,
) -> dict[str, float]:
    """Every method of a model is evaluated with the same random numbers."""
    test, kept_back, _ = problem_sets(size)
    sampled = size.samples, size.training.temperature
    validation = Evaluation(task, kept_back, derive_seed(run.model, "validation"), *sampled)
    alone = own = validation.accuracy(senior, junior, None)
    if run.method is not None and run.method.is_cowritten:
        own = validation.accuracy(senior, junior, run.method.schedule)
    evaluation = Evaluation(task, test, derive_seed(run.model, "test"), *sampled)
    measured = evaluation.beside(senior, junior, counts)
    return {"validation": alone, "own_validation": own, **measured}
