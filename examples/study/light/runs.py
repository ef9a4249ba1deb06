"""Every teaching and training of the study, each in a process of its own, and its note."""

from __future__ import annotations

import functools
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from light.evaluate import Evaluation
from light.grpo import Method, train
from light.model import LanguageModel, load_model, save_model
from light.notes import write_json
from light.problem import Problem, draw_problems
from light.size import METHODS, LightSize
from light.task import Task
from light.teaching import Facts, Teaching, teach
from tandem_plugin.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class Training:
    """One training: of a taught model beside its frozen self, by a method, with a seed."""

    start: int
    method: Method
    seed: int

    @property
    def name(self) -> str:
        return f"start {self.start} {self.method.name} seed {self.seed}"

    def note(self, out: Path) -> Path:
        """Where what came of it is written."""
        return out / "trainings" / f"{self.name.replace(' ', '-')}.json"


@functools.lru_cache(maxsize=2)
def problem_sets(size: LightSize) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """(held out, validation, training), drawn once in a process; no problem is in two of them."""
    held_out = draw_problems(size.problems, 17)
    validation = draw_problems(size.validation_problems, 19, held_out)
    kept_out = frozenset([*held_out, *validation])
    return held_out, validation, draw_problems(size.training_problems, 23, kept_out)


def trainings(size: LightSize) -> list[Training]:
    """All trainings: seeds first, so that a study that is cut short has every method."""
    starts = range(1, size.starts + 1)
    return [Training(s, method, seed) for seed in size.seeds for s in starts for method in METHODS]


def run_trainings(
    out: Path, size: LightSize, workers: int, on_done: Callable[[int, int, str], None]
) -> None:
    """Teach and measure every start, and run every training that has no note yet.

    on_done: called with how many are done, how many there are, and the last one's name.
    """
    teachings = [(_teach, out, size, start) for start in range(1, size.starts + 1)]
    rest = [(_train, out, size, one) for one in trainings(size)]
    done = 0
    for part in (teachings, rest):
        for name in _in_processes(part, workers):
            done += 1
            on_done(done, len(teachings) + len(rest), name)


def taught(out: Path, start: int) -> Path:
    """Where the measures of a start as it was taught are."""
    return out / "trainings" / f"start-{start}-taught.json"


def _in_processes(calls: Sequence[tuple[Any, ...]], workers: int) -> Iterator[str]:
    """Run calls, each ``(function, *arguments)``, at most ``workers`` at a time."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        waiting = {pool.submit(function, *arguments): arguments for function, *arguments in calls}
        try:
            for future in as_completed(waiting):
                future.result()
                *_, last = waiting[future]
                yield last.name if isinstance(last, Training) else f"start {last} taught"
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    torch.set_num_threads(1)


def _model_file(out: Path, start: int) -> Path:
    return out / "models" / f"start-{start}.pt"


def _teach(out: Path, size: LightSize, start: int) -> None:
    """A model with misconceptions of its own, and what it measures beside itself."""
    note, file = taught(out, start), _model_file(out, start)
    if note.exists():
        return
    task, (held_out, validation, _) = Task(), problem_sets(size)
    if not file.exists():
        teaching = Teaching(Facts.draw(1000 + start, size.misconceived))
        kept_out = frozenset([*held_out, *validation])
        save_model(teach(task, teaching, size.lesson, seed=start, without=kept_out), file)
    model = load_model(file)
    # Other random numbers than the senior's: one model twice shows the noise of drift.
    junior = _evaluation(task, size, "junior").alone(model)[0]
    counts = np.array(junior["token_counts"])
    senior = _measured(_evaluation(task, size, "taught"), model, model, counts)
    write_json(note, {"senior": senior, "junior": junior})


def _train(out: Path, size: LightSize, one: Training) -> None:
    note = one.note(out)
    if note.exists():
        return
    task, (_, kept_back, problems) = Task(), problem_sets(size)
    counts = np.array(read_note(taught(out, one.start))["junior"]["token_counts"])
    evaluation = _evaluation(task, size, "held out", one.seed)
    temperature = size.training.temperature
    seed = derive_seed(one.seed, "validation")
    validation = Evaluation(task, kept_back, seed, temperature=temperature)
    start = load_model(_model_file(out, one.start))
    in_team = one.method.schedule is not None and not one.method.alone
    curve: list[dict[str, Any]] = []
    rewards: list[float] = []

    def on_step(step: int, senior: LanguageModel, reward: float) -> None:
        rewards.append(reward)
        if step % size.evaluate_every == 0 or step == size.training.steps:
            accuracy = (
                validation.team_accuracy(senior, start)
                if in_team
                else validation.alone(senior)[0]["solo"]
            )
            measured = _measured(evaluation, senior, start, counts)
            curve.append({"step_number": step, "validation": accuracy, **measured})

    train(task, start, start, one.method, problems, one.seed, size.training, on_step)
    write_json(note, {"name": one.name, "rewards": rewards, "curve": curve})


def _evaluation(task: Task, size: LightSize, name: str, seed: int = 0) -> Evaluation:
    held_out, seed = problem_sets(size)[0], derive_seed(seed, name)
    return Evaluation(task, held_out, seed, size.samples, size.training.temperature)


def _measured(
    evaluation: Evaluation, senior: LanguageModel, junior: LanguageModel, counts: np.ndarray
) -> dict[str, Any]:
    """A senior's measures, alone and beside the junior; counts: of the junior's own tokens."""
    found, responses = evaluation.alone(senior)
    return {**found, **evaluation.beside(senior, junior, responses, counts)}


def read_note(path: Path) -> dict[str, Any]:
    """A note of a training."""
    return dict(json.loads(path.read_text(encoding="utf-8")))
