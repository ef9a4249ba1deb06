"""Every training of the study, each in a process of its own, and its note when it is done."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from light.evaluate import Evaluation
from light.grpo import Method, train
from light.model import LanguageModel, load_model
from light.notes import write_json
from light.pairs import (
    SENIOR,
    junior_of,
    model_folder,
    models_of,
    problems_of,
    teach_model,
)
from light.size import LightSize
from light.task import Task
from tandem_plugin.seeds import derive_seed

__all__ = ["Training", "default_workers", "read_note", "run_trainings", "taught", "trainings"]

Readers: TypeAlias = Mapping[str, tuple[LanguageModel, np.ndarray]]
"""Each junior, and how often it writes each token alone."""


@dataclass(frozen=True, slots=True)
class Training:
    """One training: of a pair's senior, by a method, with a seed.

    beside: the exposures of the juniors that it is evaluated with. A method that uses a junior has
    one; GRPO uses none, and is one training for all of them.
    """

    pair: int
    method: Method
    seed: int
    beside: tuple[str, ...]

    @property
    def name(self) -> str:
        junior = f" {self.beside[0]}" if self.uses_junior else ""
        return f"pair {self.pair} {self.method.name}{junior} seed {self.seed}"

    @property
    def uses_junior(self) -> bool:
        return self.method.schedule is not None or self.method.kl > 0

    def note(self, out: Path) -> Path:
        """Where what came of it is written."""
        return out / "trainings" / f"{self.name.replace(' ', '-').replace('%', '-percent')}.json"


def trainings(size: LightSize) -> list[Training]:
    """All trainings: seeds first, so that a study that is cut short has every method."""
    found: dict[Training, None] = {}
    for seed in size.seeds:
        for pair in range(1, size.pairs + 1):
            for exposure in size.exposures:
                for method in size.methods(exposure):
                    one = Training(pair, method, seed, (exposure,))
                    beside = one.beside if one.uses_junior else size.exposures
                    found[Training(pair, method, seed, beside)] = None
    return list(found)


def run_trainings(
    out: Path, size: LightSize, workers: int, on_done: Callable[[int, int, str], None]
) -> None:
    """Teach every pair, measure it, and run every training that has no note yet.

    on_done: called with how many are done, how many there are, and the last one's name.
    """
    teachings = [(teach_model, out, size, *model) for model in models_of(size)]
    baselines = [(_measure_taught, out, size, pair) for pair in range(1, size.pairs + 1)]
    rest = [(_train, out, size, one) for one in trainings(size)]
    total = len(teachings) + len(baselines) + len(rest)
    done = 0
    for part in (teachings, baselines, rest):
        for name in _in_processes(part, workers):
            done += 1
            on_done(done, total, name)


def taught(out: Path, pair: int) -> Path:
    """Where the measures of a pair as it was taught are."""
    return out / "trainings" / f"pair-{pair}-taught.json"


def _in_processes(calls: Sequence[tuple[Any, ...]], workers: int) -> Iterator[str]:
    """Run calls, each ``(function, *arguments)``, at most ``workers`` at a time."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        waiting = {pool.submit(function, *arguments): arguments for function, *arguments in calls}
        try:
            for future in as_completed(waiting):
                future.result()
                yield _named(waiting[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _named(arguments: Iterable[Any]) -> str:
    *_, last = arguments
    return last.name if isinstance(last, Training) else str(last)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _measure_taught(out: Path, size: LightSize, pair: int) -> None:
    """The taught senior beside every junior, and what the juniors write alone."""
    note = taught(out, pair)
    if note.exists():
        return
    task, held_out = Task(), problems_of(size).held_out
    # Other random numbers than the senior's: equal models are to show the noise of drift.
    junior_evaluation = Evaluation(task, held_out, derive_seed(0, "juniors"))
    models = {exposure: junior_of(out, pair, exposure) for exposure in size.exposures}
    juniors = {name: junior_evaluation.alone(model)[0] for name, model in models.items()}
    evaluation = Evaluation(task, held_out, derive_seed(0, "taught"))
    start = load_model(model_folder(out, pair, SENIOR))
    readers = {name: (model, np.array(juniors[name]["counts"])) for name, model in models.items()}
    write_json(note, {"senior": _measured(evaluation, start, readers), "juniors": juniors})


def _train(out: Path, size: LightSize, one: Training) -> None:
    note = one.note(out)
    if note.exists():
        return
    task, problems = Task(), problems_of(size)
    juniors = read_note(taught(out, one.pair))["juniors"]
    readers: Readers = {
        name: (junior_of(out, one.pair, name), np.array(juniors[name]["counts"]))
        for name in one.beside
    }
    evaluation = Evaluation(task, problems.held_out, derive_seed(one.seed, "held out"))
    validation = Evaluation(task, problems.validation, derive_seed(one.seed, "validation"))
    start = load_model(model_folder(out, one.pair, SENIOR))
    junior = readers[one.beside[0]][0]
    curve: list[dict[str, Any]] = []
    rewards: list[float] = []

    def on_step(step: int, senior: LanguageModel, reward: float) -> None:
        rewards.append(reward)
        if step % size.evaluate_every == 0 or step == size.training.steps:
            accuracy = (
                validation.team_accuracy(senior, junior)
                if one.method.schedule
                else validation.alone(senior)[0]["solo"]
            )
            measured = _measured(evaluation, senior, readers)
            curve.append({"step": step, "validation": accuracy, **measured})

    train(task, start, junior, one.method, problems.training, one.seed, size.training, on_step)
    write_json(note, {"name": one.name, "rewards": rewards, "curve": curve})


def _measured(evaluation: Evaluation, senior: LanguageModel, readers: Readers) -> dict[str, Any]:
    """A senior's measures: alone, and beside each junior."""
    found, responses = evaluation.alone(senior)
    beside = {
        exposure: evaluation.beside(senior, junior, responses, counts)
        for exposure, (junior, counts) in readers.items()
    }
    return {**found, "beside": beside}


def read_note(path: Path) -> dict[str, Any]:
    """A note of a training."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def default_workers() -> int:
    """One process a core."""
    return max(1, os.cpu_count() or 1)
