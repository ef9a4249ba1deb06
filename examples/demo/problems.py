"""Word problems with worked solutions, drawn from a seed: what the demo's model learns from.

The numbers are small on purpose. A solution takes three reasoning steps, separated by blank
lines, and ends with the answer in ``\\boxed{}``.

The texts a model learns from are never perfect, so a worked solution may contain slips: with
probability ``slip_rate`` the result of a step is a little off, and the rest of the solution goes
on from it. A model taught on such text reasons in clean sentences and is sometimes wrong, which
is what reinforcement learning is there to repair. ``WordProblem.answer`` is always the right one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tandem_plugin.lab.data import Problem, PromptTemplate

NAMES = ("Mia", "Tom", "Ana", "Leo", "Ida", "Max", "Eva", "Ben", "Zoe", "Sam", "Ada", "Kai")
OBJECTS = ("apples", "books", "coins", "shells", "cards", "pens", "stamps", "beads", "nuts", "cups")
CONTAINERS = ("bags", "boxes", "jars", "packs")
SLIPS = (-10, -2, -1, 1, 2, 10)

TEMPLATES = (
    (
        "{first} has {base} {things}. {first} buys {count} {containers} of {each} {things} and "
        "gives {used} to {second}. How many {things} are left?",
        "{first} buys {count} * {each} = {product} {things}.",
        "Now there are {base} + {product} = {total} {things}.",
        "After the gift to {second} there are {total} - {used} = {left} left.",
    ),
    (
        "{first} fills {count} {containers} with {each} {things} each. Then {used} {things} break "
        "and {second} brings {base} more. How many {things} are there?",
        "The {containers} hold {count} * {each} = {product} {things}.",
        "With those of {second} it makes {product} + {base} = {total}.",
        "Without the broken ones it is {total} - {used} = {left} {things}.",
    ),
    (
        "{first} and {second} share their {things}. {first} brings {base} and {second} brings "
        "{count} {containers} with {each} each. They use {used}. How many {things} remain?",
        "{second} brings {count} * {each} = {product} {things}.",
        "Together they have {base} + {product} = {total} {things}.",
        "They use {used}, so {total} - {used} = {left} remain.",
    ),
)
"""A question and the three steps of its solution: a product, a sum and a difference."""


@dataclass(frozen=True, slots=True)
class WordProblem:
    """One question with its right answer and one worked solution, which may contain slips."""

    question: str
    answer: str
    solution: str

    @property
    def problem(self) -> Problem:
        """The same without its solution, as ``tandem data`` reads problems."""
        return Problem(1, ({"role": "user", "content": self.question},), (self.answer,))

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat that asks it, with the instruction to answer in a box."""
        return PromptTemplate().messages(self.problem)


def draw_problem(rng: random.Random, slip_rate: float = 0.0) -> WordProblem:
    """One problem; each step of its solution slips with probability ``slip_rate``."""

    def work_out(result: int) -> int:
        if rng.random() >= slip_rate:
            return result
        return max(1, result + rng.choice(SLIPS))

    first, second = rng.sample(NAMES, 2)
    words = {"first": first, "second": second}
    words |= {"things": rng.choice(OBJECTS), "containers": rng.choice(CONTAINERS)}
    question, *steps = rng.choice(TEMPLATES)
    # There is always enough for what is used.
    base, count, each, used = (rng.randint(*ends) for ends in ((5, 14), (2, 5), (2, 5), (2, 8)))
    product = work_out(count * each)
    total = work_out(base + product)
    left = work_out(total - used)
    numbers = {"base": base, "count": count, "each": each, "used": used}
    numbers |= {"product": product, "total": total, "left": left}
    lines = [step.format(**words, **numbers) for step in steps]
    return WordProblem(
        question.format(**words, **numbers),
        str(base + count * each - used),
        "\n\n".join([*lines, f"The answer is \\boxed{{{left}}}"]),
    )


def draw_distinct(
    count: int, seed: int, *, slip_rate: float = 0.0, without: frozenset[str] = frozenset()
) -> list[WordProblem]:
    """``count`` problems with different questions, none of them in ``without``."""
    rng, drawn = random.Random(seed), dict[str, WordProblem]()
    while len(drawn) < count:
        problem = draw_problem(rng, slip_rate)
        if problem.question not in without:
            drawn.setdefault(problem.question, problem)
    return list(drawn.values())
