"""Word problems with worked solutions, drawn from a seed: what the demo's model learns from.

The numbers are small on purpose. A solution takes three reasoning steps, separated by blank
lines, and ends with the answer in ``\\boxed{}``.

The texts a model learns from are never perfect, so a worked solution may contain slips: with
probability ``slip_rate`` the result of a step is a little off, and the rest of the solution goes
on from it. A model taught on such text reasons in clean sentences and is sometimes wrong, which
is what reinforcement learning is there to repair. ``Problem.answer`` is always the right one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

NAMES = ("Mia", "Tom", "Ana", "Leo", "Ida", "Max", "Eva", "Ben", "Zoe", "Sam", "Ada", "Kai")
OBJECTS = ("apples", "books", "coins", "shells", "cards", "pens", "stamps", "beads", "nuts", "cups")
CONTAINERS = ("bags", "boxes", "jars", "packs")
SLIPS = (-10, -2, -1, 1, 2, 10)


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its right answer and one worked solution, which may contain slips."""

    question: str
    answer: str
    solution: str
    kind: str
    """What it is about: one of :data:`KINDS`."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """The people and things of one problem, and the way its steps are worked out."""

    first: str
    second: str
    things: str
    containers: str
    work_out: Callable[[int], int]


def _buy(rng: random.Random, at: _Setting) -> tuple[str, int, list[str]]:
    start, count, each, given = _numbers(rng)
    question = (
        f"{at.first} has {start} {at.things} . {at.first} buys {count} {at.containers} of {each} "
        f"{at.things} and gives {given} to {at.second} . How many {at.things} are left ?"
    )
    bought = at.work_out(count * each)
    total = at.work_out(start + bought)
    left = at.work_out(total - given)
    steps = [
        f"{at.first} buys {count} * {each} = {bought} {at.things} .",
        f"Now there are {start} + {bought} = {total} {at.things} .",
        f"After the gift to {at.second} there are {total} - {given} = {left} left .",
    ]
    return question, start + count * each - given, [*steps, str(left)]


def _lose(rng: random.Random, at: _Setting) -> tuple[str, int, list[str]]:
    found, count, each, lost = _numbers(rng)
    question = (
        f"{at.first} fills {count} {at.containers} with {each} {at.things} each . Then {lost} "
        f"{at.things} break and {at.second} brings {found} more . How many {at.things} are there ?"
    )
    filled = at.work_out(count * each)
    whole = at.work_out(filled + found)
    kept = at.work_out(whole - lost)
    steps = [
        f"The {at.containers} hold {count} * {each} = {filled} {at.things} .",
        f"With those of {at.second} it makes {filled} + {found} = {whole} .",
        f"Without the broken ones it is {whole} - {lost} = {kept} {at.things} .",
    ]
    return question, count * each + found - lost, [*steps, str(kept)]


def _share(rng: random.Random, at: _Setting) -> tuple[str, int, list[str]]:
    extra, count, each, used = _numbers(rng)
    question = (
        f"{at.first} and {at.second} share their {at.things} . {at.first} brings {extra} and "
        f"{at.second} brings {count} {at.containers} with {each} each . They use {used} . "
        f"How many {at.things} remain ?"
    )
    brought = at.work_out(count * each)
    together = at.work_out(extra + brought)
    remaining = at.work_out(together - used)
    steps = [
        f"{at.second} brings {count} * {each} = {brought} {at.things} .",
        f"Together they have {extra} + {brought} = {together} {at.things} .",
        f"They use {used} , so {together} - {used} = {remaining} remain .",
    ]
    return question, extra + count * each - used, [*steps, str(remaining)]


_TEMPLATES = {"buying": _buy, "breaking": _lose, "sharing": _share}
KINDS = tuple(_TEMPLATES)


def _numbers(rng: random.Random) -> tuple[int, int, int, int]:
    """What is there, how many containers, how many in each, what goes: always enough to take."""
    return rng.randint(5, 14), rng.randint(2, 5), rng.randint(2, 5), rng.randint(2, 8)


def draw_problem(rng: random.Random, slip_rate: float = 0.0) -> Problem:
    """One problem; each step of its solution slips with probability ``slip_rate``."""

    def work_out(result: int) -> int:
        if rng.random() >= slip_rate:
            return result
        return max(1, result + rng.choice(SLIPS))

    first, second = rng.sample(NAMES, 2)
    setting = _Setting(first, second, rng.choice(OBJECTS), rng.choice(CONTAINERS), work_out)
    kind = rng.choice(KINDS)
    question, answer, lines = _TEMPLATES[kind](rng, setting)
    lines[-1] = f"The answer is \\boxed{{{lines[-1]}}}"
    return Problem(_plain(question), str(answer), "\n\n".join(map(_plain, lines)), kind)


def _plain(text: str) -> str:
    """Closes the gaps before punctuation, which the templates leave to stay readable."""
    return text.replace(" .", ".").replace(" ?", "?").replace(" ,", ",")


def draw_distinct(
    count: int, seed: int, *, slip_rate: float = 0.0, without: frozenset[str] = frozenset()
) -> list[Problem]:
    """``count`` problems with different questions, none of them in ``without``."""
    return list(_take(count, _distinct(random.Random(seed), slip_rate, without)))


def _distinct(rng: random.Random, slip_rate: float, without: frozenset[str]) -> Iterator[Problem]:
    seen = set(without)
    while True:
        problem = draw_problem(rng, slip_rate)
        if problem.question not in seen:
            seen.add(problem.question)
            yield problem


def _take(count: int, problems: Iterator[Problem]) -> Iterator[Problem]:
    for _, problem in zip(range(count), problems, strict=False):
        yield problem
