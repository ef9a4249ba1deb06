"""The study in three worlds: pairs, arms, and what is measured of a senior at equal accuracy alone.

A *world* says what a junior can read of what its senior may write. A *unit* is one senior with its
juniors and readers, in one world or in two; an *arm* is one way to train that senior. A training
ends where the senior alone reaches :data:`LEVEL`, and its row has the last two checkpoints.
"""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from light.grpo import GRPO, HALF, TANDEM, Method, Optimization, train
from light.model import LanguageModel, load_model, save_model
from light.responses import Evaluation, legibility
from light.task import Problem, Task, draw_facts, draw_problems, teach
from tandem_plugin import hookimpl
from tandem_plugin.lab.evaluation.drift import kl_divergence, token_counts
from tandem_plugin.seeds import derive_seed

LEVEL = 0.9
"""Accuracy alone, on the validation problems, at which seniors are compared."""
PLACES = (1, 2, 3)
"""Steps after which one model hands over to the other; a whole solution has four and the box."""


@dataclass(frozen=True, slots=True)
class World:
    """misconceived: the shares of facts that are taught wrong, in plain words and in the jargon.
    seen: the share of the jargon in the junior's lessons; None: the junior is the senior as taught,
    which has seen both notations half and half."""

    name: str
    misconceived: tuple[float, float]
    seen: float | None


SELF = World("self-pair", (0.25, 0.25), None)
RARE = World("1% seen", (0.35, 0.15), 0.01)
SOME = World("5% seen", (0.35, 0.15), 0.05)
OTHERS = tuple(World(f"{100 * seen:g}% seen", (0.35, 0.15), seen) for seen in (0, 0.02, 0.2, 0.5))
"""Of the exploratory sweep of exposure, beside the two above."""

SECOND = Method("GRPO, second seed", repeat=1)
HANDOVER = Method("one random handover", schedule="one-handover")
QUARTER = Method("tandem, a quarter alone", schedule="word", alone=0.25)
HALF_ALONE = Method("tandem, half alone", schedule="word", alone=0.5)
KL = "KL-Reg"
"""The arm with the coefficient that :func:`light.verdicts.chosen_coefficient` takes."""
COEFFICIENTS = (0.1, 0.2)
"""In the pilots 0.05 went where GRPO does, and 0.5 did not learn."""
ARMS: tuple[Method | str, ...] = (GRPO, TANDEM, QUARTER, HANDOVER, SECOND, HALF, KL)


def arm_name(arm: Method | str) -> str:
    """The name in the rows."""
    return arm if isinstance(arm, str) else arm.name


@dataclass(frozen=True, slots=True)
class OneHandover:
    """The senior begins; at each boundary it hands over for good with probability ``q``."""

    name: ClassVar[str] = "one-handover"
    boundaries: ClassVar[str] = "step"
    q: float = 0.3

    def start(self, u: Any) -> Any:
        return u >= 0

    def advance(self, author: Any, run: Any, is_boundary: Any, u: Any) -> tuple[Any, Any]:
        return author & ~(is_boundary & (u < self.q)), run + 1


class Schedules:
    """The study's own schedule, as a plugin."""

    @hookimpl
    def register_schedules(self, register: Callable[[Any], None]) -> None:
        register(OneHandover)


@dataclass(frozen=True, slots=True)
class Size:
    """lesson: batches of a teaching. check_every: steps between two checkpoints. checked, samples:
    responses to each validation problem, and to each test problem under each measure."""

    lesson: int = 1500
    training: Optimization = field(
        default_factory=lambda: Optimization(
            steps=400, prompts=16, learning_rate=1e-4, temperature=0.6
        )
    )
    check_every: int = 20
    problems: int = 400
    checked: int = 4
    samples: int = 2
    training_problems: int = 20_000
    level: float = LEVEL


WHOLE = Size()
QUICK = Size(
    lesson=3,
    training=Optimization(steps=2, prompts=2, group=2, temperature=0.6),
    check_every=1,
    problems=4,
    checked=1,
    samples=1,
    training_problems=20,
    level=0.0,
)
"""Seconds: everything runs, and nothing is learnt."""


@functools.lru_cache(maxsize=2)
def problem_sets(size: Size) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """(test, validation, training); no problem is in two of them."""
    test = draw_problems(size.problems, 1017)
    validation = draw_problems(size.problems, 1019, test)
    kept_out = frozenset([*test, *validation])
    return test, validation, draw_problems(size.training_problems, 1023, kept_out)


@dataclass(frozen=True, slots=True)
class Unit:
    """A senior by its number, and the worlds it is trained in."""

    number: int
    worlds: tuple[World, ...]


CHOICE = tuple(Unit(number, (RARE, SOME)) for number in (501, 502))
"""Of the choice of KL-Reg's coefficient."""
READABLE = tuple(Unit(number, (RARE, SOME)) for number in range(511, 521))
SELVES = tuple(Unit(number, (SELF,)) for number in range(531, 547))
EXPLORED = tuple(Unit(number, (RARE, SOME, *OTHERS)) for number in (511, 512, 513))
"""The sweep of exposure, and a half alone."""


class Pair:
    """A unit's senior as taught, and in one world its junior and a reader that is never its
    partner: of the junior's lessons, by another teacher. Units of the choice have no reader."""

    def __init__(self, task: Task, size: Size, folder: Path, number: int, world: World) -> None:
        self.task, self.size, self.number, self.world = task, size, number, world
        self._folder = folder
        self.senior = self._taught("senior", 0.5)
        seen = 0.5 if world.seen is None else world.seen
        self.junior = self.senior if world.seen is None else self._taught("junior", seen)
        has_reader = number not in {unit.number for unit in CHOICE}
        self.reader = self._taught("reader", seen) if has_reader else None
        test, validation, _ = problem_sets(size)
        temperature = size.training.temperature
        self._validation = Evaluation(
            task, validation, derive_seed(number, "validation"), size.checked, temperature
        )
        self._test = Evaluation(task, test, derive_seed(number, "test"), size.samples, temperature)
        alone = self._test.answers("junior", self.junior)
        self._counts = token_counts(alone.token_ids(), task.size)
        self.junior_alone = self._accuracy(alone.token_ids())

    def _taught(self, role: str, jargon: float) -> LanguageModel:
        """A model that believes this unit's facts; taught once, and kept in a file."""
        shares = self.world.misconceived
        name = "-".join(f"{part:g}" for part in (self.number, *shares, jargon))
        file = self._folder / f"{role}-{name}.pt"
        if not file.exists():
            facts = draw_facts(derive_seed(self.number, "facts"), shares)
            kept_out = frozenset([part for held in problem_sets(self.size)[:2] for part in held])
            seed = derive_seed(self.number, role)
            model = teach(self.task, facts, self.size.lesson, seed, kept_out, jargon)
            save_model(model, file)
        return load_model(file)

    @torch.inference_mode()
    def validate(self, senior: LanguageModel) -> float:
        """Accuracy alone by which seniors are matched."""
        return self._validation.accuracy(senior, self.junior, None)

    @torch.inference_mode()
    def measure(self, senior: LanguageModel) -> dict[str, float]:
        """Every measure of a senior beside this pair's junior and reader, on the test problems.

        ``continued``, ``recovered``, ``read``: means over the places of handover, of the junior
        finishing what the senior began, the senior what the junior began, and the reader what the
        senior began; by place with the number of steps behind the name.
        """
        alone = self._test.answers("solo", senior)
        counts = token_counts(alone.token_ids(), self.task.size)
        found = {
            "alone": self._accuracy(alone.token_ids()),
            "team": self._test.accuracy(senior, self.junior, "step"),
            "jargon": self.task.jargon_share(counts),
            "drift": kl_divergence(counts, self._counts),
        }
        for name, first, other in (
            ("continued", "senior", self.junior),
            ("recovered", "junior", self.junior),
            ("read", "senior", self.reader),
        ):
            if other is None:
                continue
            each = {f"{name}_{k}": self._handed_over(name, senior, other, first, k) for k in PLACES}
            found |= {name: float(np.mean(list(each.values()))), **each}
        kept = slice(None, None, self.size.samples)
        return found | legibility(senior, self.junior, alone.ids[kept], alone.written[kept])

    def _handed_over(
        self, name: str, senior: LanguageModel, other: LanguageModel, first: str, after: int
    ) -> float:
        rule = self.task.rule("handover", first=first, after=after, boundaries="step")
        answers = self._test.answers(f"{name} {after}", senior, other, rule)
        return self._accuracy(answers.token_ids())

    def _accuracy(self, ids: Sequence[Sequence[int]]) -> float:
        return float(self.task.rewards(ids, self._test.problems).mean())


def taught_row(pair: Pair) -> dict[str, Any]:
    """The row of a senior as it was taught, with what its junior solves alone."""
    point = {"step": 0, "tokens": 0, "validation": pair.validate(pair.senior)}
    point |= pair.measure(pair.senior)
    return {
        **_named(pair, "as taught"),
        "junior_alone": pair.junior_alone,
        "weights": [_digest(one) for one in (pair.senior, pair.junior, pair.reader) if one],
        "points": [point],
    }


def trained_rows(pairs: Sequence[Pair], method: Method, name: str) -> list[dict[str, Any]]:
    """Train a senior beside the first pair's junior up to the level, and measure it beside each.

    pairs: of one senior; several where the training does not depend on the junior. A row's points
    are the last checkpoint below the level (none if the first is above it) and the one that reached
    it, or the last of all.
    """
    size, first = pairs[0].size, pairs[0]
    kept: list[tuple[dict[str, float], LanguageModel]] = []
    for point, senior in _checkpoints(first, method):
        kept = [*kept[-1:], (point, copy.deepcopy(senior))]
        if point["validation"] >= size.level:
            break
    reached = kept[-1][0]["validation"] >= size.level
    return [
        {
            **_named(pair, name),
            "kl": method.kl,
            "reached": reached,
            "points": [point | pair.measure(senior) for point, senior in kept],
        }
        for pair in pairs
    ]


def _checkpoints(pair: Pair, method: Method) -> Iterator[tuple[dict[str, float], LanguageModel]]:
    size, tokens, rewards = pair.size, 0, []
    seed = derive_seed(pair.number, "training", method.repeat)
    steps = train(
        pair.task, pair.senior, method, problem_sets(size)[2], seed, size.training, pair.junior
    )
    for step in steps:
        tokens += step.trained
        rewards.append(step.reward)
        if step.number % size.check_every == 0:
            point = {"step": step.number, "tokens": tokens, "reward": float(np.mean(rewards))}
            rewards.clear()
            yield point | {"validation": pair.validate(step.senior)}, step.senior


def _named(pair: Pair, arm: str) -> dict[str, Any]:
    return {"unit": pair.number, "world": pair.world.name, "arm": arm}


def _digest(model: LanguageModel) -> str:
    """Of a model's weights: a training begins from the same ones wherever it runs."""
    found = hashlib.sha256()
    for name, weights in model.state_dict().items():
        found.update(name.encode())
        found.update(weights.numpy().tobytes())
    return found.hexdigest()[:16]
