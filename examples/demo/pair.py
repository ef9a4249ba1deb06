"""The demo's world: word problems, solutions in two languages, and three models taught on them.

A solution takes three steps, a sentence each, and boxes its answer. Every sentence is English or
Spanish, with all of its numbers in words, and has :data:`STEP_TOKENS` tokens. The senior is taught
both languages half and half. The junior, and a reader that is nobody's partner, have seen the
second in one sentence of a hundred.

The texts hold *misconceptions*, as texts do: some sums, products and differences have one and the
same wrong result in most of their sentences, in either language by itself. They are more frequent
in English. So there is a reason to leave the language that others read, and it is built in.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import torch
from model import build_model, fit, train_tokenizer
from tokenizers import Regex
from transformers import PreTrainedTokenizerFast

from tandem_plugin.lab.data import Problem, PromptTemplate

PROMPT = PromptTemplate("{problem}", instruction="")
"""The question alone: a solution always boxes its answer."""


@dataclass(frozen=True, slots=True)
class Language:
    """numbers: the words for 0 to 20. openings, signs: of a product, a sum, a difference."""

    name: str
    numbers: tuple[str, ...]
    openings: tuple[str, str, str]
    signs: tuple[str, str, str]
    equals: str
    things: tuple[str, ...]

    def sentence(self, step: int, left: int, right: int, result: int, thing: int) -> str:
        """One step, from 0, in words."""
        words = (self.numbers[left], self.signs[step], self.numbers[right], self.equals)
        end = f"{self.numbers[result]} {self.things[thing]}."
        return f"{self.openings[step]} {' '.join(words)} {end}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ENGLISH = Language(
    "English",
    _words(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen "
        "fourteen fifteen sixteen seventeen eighteen nineteen twenty"
    ),
    ("First,", "Then,", "Finally,"),
    ("times", "plus", "minus"),
    "is",
    ("apples", "books", "coins", "shells", "cards", "pens"),
)
SPANISH = Language(
    "Spanish",
    _words(
        "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece "
        "catorce quince dieciséis diecisiete dieciocho diecinueve veinte"
    ),
    ("Primero,", "Luego,", "Finalmente,"),
    ("por", "más", "menos"),
    "son",
    ("manzanas", "libros", "monedas", "conchas", "cartas", "plumas"),
)
LANGUAGES = (ENGLISH, SPANISH)

NAMES = ("Mia", "Tom", "Ana", "Leo", "Ida", "Max", "Eva", "Ben", "Zoe", "Sam", "Ada", "Kai")
QUESTIONS = (
    "{first} has {base} {things}, buys {count} bags of {each} and gives {used} to {second}. "
    "How many {things} are left?",
    "{first} fills {count} bags with {each} {things} each. {second} brings {base} more, and {used} "
    "break. How many {things} are there?",
    "{second} brings {count} boxes of {each} {things}, and {first} brings {base}. They use {used}. "
    "How many {things} remain?",
)
FACTORS = range(2, 7)
BASES = range(2, 9)
USED = range(2, 7)
LARGEST_PRODUCT = 12
FEWEST_LEFT = 2
"""So that things are right in the plural."""
RESULTS = (range(4, 13), range(6, 21), range(19))
"""Of a product, a sum and a difference, wrong ones among them: each has a word."""
STEP_TOKENS = 8
"""Of a sentence, the blank line behind it included."""
STEPS = 3
BOXED = STEPS * STEP_TOKENS + 4
"""Tokens of a solution: its sentences, the box, and the end."""

Numbers: TypeAlias = tuple[int, int, int, int]
"""What a problem starts with, the two factors, and what is used."""


def _all_numbers() -> list[Numbers]:
    every = itertools.product(BASES, FACTORS, FACTORS, USED)
    return [
        (base, count, each, used)
        for base, count, each, used in every
        if count * each <= LARGEST_PRODUCT and base + count * each - used >= FEWEST_LEFT
    ]


@dataclass(frozen=True, slots=True)
class Story:
    """One problem: its numbers, and the words around them."""

    numbers: Numbers
    template: int
    first: str
    second: str
    thing: int

    @property
    def operations(self) -> tuple[int, int, int]:
        """The right results of the three steps."""
        base, count, each, used = self.numbers
        return count * each, base + count * each, base + count * each - used

    @property
    def problem(self) -> Problem:
        """As ``tandem data`` reads it."""
        base, count, each, used = self.numbers
        text = QUESTIONS[self.template].format(
            first=self.first,
            second=self.second,
            things=ENGLISH.things[self.thing],
            base=base,
            count=count,
            each=each,
            used=used,
        )
        return Problem(1, ({"role": "user", "content": text},), (str(self.operations[-1]),))

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat that asks it."""
        return PROMPT.messages(self.problem)


def draw_story(rng: random.Random, numbers: Numbers) -> Story:
    """Other words around these numbers."""
    first, second = rng.sample(NAMES, 2)
    return Story(numbers, rng.randrange(len(QUESTIONS)), first, second, rng.randrange(6))


def split_numbers(held_out: int, seed: int) -> tuple[list[Numbers], list[Numbers]]:
    """(to teach and to train on, held out): no problem of the second has the four numbers of one
    of the first, whatever its words."""
    numbers = _all_numbers()
    random.Random(seed).shuffle(numbers)
    return numbers[held_out:], numbers[:held_out]


def draw_stories(count: int, seed: int, numbers: Sequence[Numbers]) -> list[Story]:
    """So many problems of these numbers, each as often as another."""
    rng = random.Random(seed)
    return [draw_story(rng, four) for four in itertools.islice(itertools.cycle(numbers), count)]


Facts: TypeAlias = Mapping[tuple[str, int, int, int], int]
"""Wrong results by language, step and the two numbers."""


def draw_facts(shares: Sequence[float], seed: int) -> Facts:
    """shares: of the facts of each kind that are misconceived, by language."""
    rng = random.Random(seed)
    wrong = {}
    for language, share in zip(LANGUAGES, shares, strict=True):
        for step, facts in enumerate(_facts()):
            for left, right in rng.sample(facts, round(share * len(facts))):
                result = right_result(step, left, right)
                near = [n for n in RESULTS[step] if 1 <= abs(n - result) <= 3]
                wrong[language.name, step, left, right] = rng.choice(near)
    return wrong


def _facts() -> tuple[list[tuple[int, int]], ...]:
    products = [
        (a, b) for a in FACTORS for b in FACTORS if right_result(0, a, b) <= LARGEST_PRODUCT
    ]
    sums = [(a, b) for a in BASES for b in RESULTS[0]]
    return products, sums, [(a, b) for a in RESULTS[1] for b in USED]


def right_result(step: int, left: int, right: int) -> int:
    """Of a product, a sum or a difference."""
    return (left * right, left + right, left - right)[step]


@dataclass(frozen=True, slots=True)
class Lesson:
    """How a model is built and taught.

    second: the share of sentences in the second language. A misconceived fact is written wrong in a
    ``believed`` share of its sentences; the next step goes on from the right number all the same in
    a ``repaired`` share. A sentence keeps the language of the one before with ``keeps``.
    """

    hidden_size: int
    layers: int
    second: float
    steps: int = 600
    batch_size: int = 32
    learning_rate: float = 3e-3
    believed: float = 0.6
    repaired: float = 0.15
    keeps: float = 0.7
    vocab_size: int = 640
    seed: int = 7


def solution(story: Story, facts: Facts, lesson: Lesson, rng: random.Random) -> str:
    """One worked solution by someone who believes these facts."""
    base, count, each, used = story.numbers
    true = shown = 0
    language, lines = None, []
    for step, right in enumerate(story.operations):
        if language is None or rng.random() >= lesson.keeps:
            language = LANGUAGES[rng.random() < lesson.second]
        carried = _carried(true, shown, lesson, rng)
        pair = ((count, each), (base, carried), (carried, used))[step]
        true, shown = right, right_result(step, *pair)
        wrong = facts.get((language.name, step, *pair))
        if wrong is not None and rng.random() < lesson.believed:
            shown = wrong
        lines.append(language.sentence(step, *pair, shown, story.thing))
    return "\n\n".join([*lines, f"\\boxed{{{_carried(true, shown, lesson, rng)}}}"])


def _carried(true: int, shown: int, lesson: Lesson, rng: random.Random) -> int:
    return true if shown != true and rng.random() < lesson.repaired else shown


@dataclass(frozen=True, slots=True)
class Taught:
    """What a model is shown: a problem's chat and one worked solution."""

    messages: list[dict[str, str]]
    solution: str


PIECES = Regex(r"\\boxed\{| ?\p{L}+,?| ?\p{N}+|[^\s\p{L}\p{N}]+\n*|\s+")
"""A word or a number keeps its leading space, and a full stop the blank line behind it."""
SENIOR = Lesson(hidden_size=64, layers=3, second=0.5)
JUNIOR = Lesson(hidden_size=48, layers=2, second=0.01)
SHARES = (0.3, 0.15)
"""Of the facts that are misconceived in English, and in Spanish."""


def lessons(seed: int) -> dict[str, Lesson]:
    """The three models' by name; each has its own seed, and all the same misconceptions."""
    return {
        "senior": replace(SENIOR, seed=10 * seed),
        "junior": replace(JUNIOR, seed=10 * seed + 1),
        "reader": replace(JUNIOR, seed=10 * seed + 2),
    }


def texts(lesson: Lesson, facts: Facts, numbers: Sequence[Numbers]) -> list[Taught]:
    """All that a lesson shows, in order."""
    rng = random.Random(lesson.seed)
    stories = (
        draw_story(rng, rng.choice(numbers)) for _ in range(lesson.steps * lesson.batch_size)
    )
    return [Taught(story.messages, solution(story, facts, lesson, rng)) for story in stories]


def make_tokenizer(taught: Sequence[Taught]) -> PreTrainedTokenizerFast:
    """The tokenizer of all models, in which a sentence of either language has
    :data:`STEP_TOKENS` tokens; trained on a senior's lesson."""
    shown = (f"{example.messages[0]['content']}\n{example.solution}" for example in taught[:4000])
    tokenizer = train_tokenizer(shown, 640, PIECES)
    for language in LANGUAGES:
        sentence = language.sentence(0, 3, 4, 12, 0)
        if (count := len(tokenizer(f"{sentence}\n\n").input_ids)) != STEP_TOKENS:
            raise ValueError(f"{sentence!r} has {count} tokens, and not {STEP_TOKENS}.")
    return tokenizer


def teach(
    lesson: Lesson, taught: Sequence[Taught], tokenizer: PreTrainedTokenizerFast, out: Path
) -> None:
    """Teach a fresh model, and save it to ``out`` as a Hugging Face checkpoint."""
    torch.manual_seed(lesson.seed)
    model = build_model(lesson, tokenizer)
    fit(model, tokenizer, taught, lesson)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
