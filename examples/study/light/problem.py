"""Problems, a number from 0 to 9 and three operations modulo 10, and two ways to write a step.

The notations share the signs, and have other words for numbers and other first words.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

STEPS = 4
OPERATIONS = ("plus", "minus", "times")


@dataclass(frozen=True, slots=True)
class Notation:
    """numbers: the words for 0 to 9. openings: equally good first words of a step."""

    name: str
    numbers: tuple[str, ...]
    openings: tuple[str, ...]


PLAIN = Notation(
    "plain",
    ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    ("So", "Then", "Now"),
)
JARGON = Notation(
    "jargon",
    ("nulo", "unu", "du", "tri", "kvar", "kvin", "ses", "sep", "ok", "naux"),
    ("Do", "Poste", "Nun"),
)
BOTH = (PLAIN, JARGON)


@dataclass(frozen=True, slots=True)
class Problem:
    """start: the first number. operations: (operation, number from 1 to 9), in order."""

    start: int
    operations: tuple[tuple[str, int], ...]

    @property
    def answer(self) -> int:
        """The result, from 0 to 9."""
        result = self.start
        for operation, number in self.operations:
            result = apply(operation, result, number)
        return result

    @property
    def question(self) -> str:
        """What is asked, in the plain notation; it asks for a box, as the product's prompts do."""
        words = ["Compute", PLAIN.numbers[self.start]]
        for operation, number in self.operations:
            words += [operation, PLAIN.numbers[number]]
        return " ".join([*words, r"\boxed{}"])


def apply(operation: str, left: int, right: int) -> int:
    """The result of one operation, modulo 10."""
    if operation == "plus":
        return (left + right) % 10
    if operation == "minus":
        return (left - right) % 10
    return left * right % 10


def draw_problem(rng: random.Random) -> Problem:
    """One of the 5.3 million problems, each as likely as another."""
    operations = tuple((rng.choice(OPERATIONS), rng.randint(1, 9)) for _ in range(STEPS))
    return Problem(rng.randrange(10), operations)


def draw_problems(count: int, seed: int, without: Collection[Problem] = ()) -> list[Problem]:
    """Different problems, none of ``without``."""
    rng = random.Random(seed)
    drawn: dict[Problem, None] = {}
    while len(drawn) < count:
        problem = draw_problem(rng)
        if problem not in without:
            drawn[problem] = None
    return list(drawn)
