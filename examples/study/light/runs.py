"""Every teaching and training of the study: how many and how large, said before, and each one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from light.grpo import GRPO, HALF, KL_REGS, TRL, Method, Optimization, train
from light.model import load_model, save_model
from light.responses import Evaluation
from light.study import Run, read_note
from light.task import Problem, Task, draw_facts, draw_problems, teach
from tandem_plugin.seeds import derive_seed

METHODS = (GRPO, HALF, *KL_REGS, TRL)


@dataclass(frozen=True, slots=True)
class LightSize:
    """starts: how many models are taught, each with other misconceptions; each is the senior of
    its trainings, and their junior. samples: responses to each problem that is evaluated."""

    starts: int = 8
    seeds: tuple[int, ...] = (1, 2)
    lesson: int = 1500
    misconceived: float = 0.25
    training: Optimization = field(
        default_factory=lambda: Optimization(
            steps=30, prompts=16, learning_rate=3e-5, temperature=0.6
        )
    )
    evaluate_every: int = 15
    problems: int = 200
    samples: int = 8
    validation_problems: int = 200
    training_problems: int = 20_000
    methods: tuple[Method, ...] = METHODS


WHOLE = LightSize()
QUICK = LightSize(
    starts=2,
    seeds=(1,),
    lesson=20,
    training=Optimization(steps=2, prompts=2, group=2, temperature=0.6),
    evaluate_every=1,
    problems=8,
    samples=2,
    validation_problems=4,
    training_problems=50,
)
"""Seconds: everything runs, and nothing is learnt."""


@dataclass(frozen=True, slots=True)
class Training(Run):
    """One training, of a taught model beside its frozen self, by a method, with a seed; without a
    method the model is taught, and measured beside itself."""

    start: int
    method: Method | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        trained = "taught" if self.method is None else f"{self.method.name} seed {self.seed}"
        return f"start {self.start} {trained}"


def teachings(size: LightSize) -> list[Training]:
    """All taught models."""
    return [Training(start) for start in range(1, size.starts + 1)]


def trainings(size: LightSize) -> list[Training]:
    """All trainings: seeds first, so that a study that is cut short has every method."""
    starts = range(1, size.starts + 1)
    return [Training(s, method, seed) for seed in size.seeds for s in starts for method in METHODS]


@functools.lru_cache(maxsize=2)
def problem_sets(size: LightSize) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """(held out, validation, training), drawn once in a process; no problem is in two of them."""
    held_out = draw_problems(size.problems, 17)
    validation = draw_problems(size.validation_problems, 19, held_out)
    kept_out = frozenset([*held_out, *validation])
    return held_out, validation, draw_problems(size.training_problems, 23, kept_out)


def run_one(out: Path, size: LightSize, run: Training) -> Mapping[str, Any]:
    """Teach or train, and measure; returns what is noted of it."""
    if run.method is None:
        return _taught(_model_file(out, run.start), size, run.start)
    return _trained(out, size, run, run.method)


def _model_file(out: Path, start: int) -> Path:
    return out / "models" / f"start-{start}.pt"


def _taught(file: Path, size: LightSize, start: int) -> Mapping[str, Any]:
    """A model with misconceptions of its own, and what it measures beside itself."""
    task, (held_out, validation, _) = Task(), problem_sets(size)
    if not file.exists():
        facts = draw_facts(1000 + start, size.misconceived)
        kept_out = frozenset([*held_out, *validation])
        save_model(teach(task, facts, size.lesson, seed=start, without=kept_out), file)
    model = load_model(file)
    # Other random numbers than the senior's: one model twice shows the noise of drift.
    junior = _evaluation(task, size, "junior").alone(model)[0]
    counts = np.array(junior["token_counts"])
    senior = _evaluation(task, size, "taught").beside(model, model, counts)
    return {"senior": senior, "junior": junior}


def _trained(out: Path, size: LightSize, run: Training, method: Method) -> Mapping[str, Any]:
    task, (_, kept_back, problems) = Task(), problem_sets(size)
    counts = np.array(read_note(Training(run.start).note(out))["junior"]["token_counts"])
    evaluation = _evaluation(task, size, "held out", run.seed)
    seed, temperature = derive_seed(run.seed, "validation"), size.training.temperature
    validation = Evaluation(task, kept_back, seed, temperature=temperature)
    start = load_model(_model_file(out, run.start))
    answering = None if method.alone else method.schedule
    note: dict[str, Any] = {"name": run.name, "rewards": [], "curve": []}
    training = train(task, start, method, problems, run.seed, size.training)
    for step, senior, reward in training:
        note["rewards"].append(reward)
        if step % size.evaluate_every == 0 or step == size.training.steps:
            accuracy = validation.accuracy(senior, start, answering)
            measured = evaluation.beside(senior, start, counts)
            note["curve"].append({"step_number": step, "validation": accuracy, **measured})
    return note


def _evaluation(task: Task, size: LightSize, name: str, seed: int = 0) -> Evaluation:
    held_out, seed = problem_sets(size)[0], derive_seed(seed, name)
    return Evaluation(task, held_out, seed, size.samples, size.training.temperature)
