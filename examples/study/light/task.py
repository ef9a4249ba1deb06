"""The task: problems in two notations, as token ids, what grading says of a response, and teaching.

A problem is a number from 0 to 9 and four operations modulo 10. The notations share the signs, and
have other words for numbers and other first words of a step.

A model is taught from nothing, by next-token prediction of worked solutions. Their mistakes are of
three kinds. A *slip* is random, and a lower temperature removes it. A *misconception* belongs to a
fact in a notation ("seven times eight" in plain words): the text gets it wrong more often than not,
always in the same way, so that no temperature removes it. A *repair* corrects an earlier step
without saying so. Facts are misconceived in each notation by itself, and as often as a world says.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from light.model import LanguageModel, Shape
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.grading import grade
from tandem_plugin.rules import Rule, TandemRules

STEPS = 4
OPERATIONS = ("plus", "minus", "times")
LONGEST = 36
"""Tokens of a response at most; a whole solution has 32."""
_OFF = (1, 2, 3, 7, 8, 9)
"""How far a wrong result is off, modulo 10."""
KEEPS = 0.7
"""How often a step keeps the notation of the one before."""
BELIEVES = 0.6
"""How often a misconceived fact is written wrong."""
REPAIRS = 0.15
"""How often a step goes on from the right number, and not from the wrong one before it."""
_UNKNOWN, _PAD, _END = "<|unknown|>", "<|endoftext|>", "<|im_end|>"
_PIECES = r" ?\\boxed\{\}|\\boxed\{|\}| ?\p{L}+|\p{N}|\n\n|\n|\s+|."
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


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
    results = {"plus": left + right, "minus": left - right, "times": left * right}
    return results[operation] % 10


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


class Tokens:
    """A tokenizer, and the rules over its vocabulary."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.end = int(tokenizer.eos_token_id)
        self._vocabulary = Vocabulary.from_tokenizer(tokenizer)

    def rule(self, schedule: str, **settings: Any) -> Rule:
        """A schedule of the product's, with its own parameters unless others are given."""
        return TandemRules(TandemConfig(schedule=schedule, **settings), self._vocabulary).default


class Task(Tokens):
    """The tokenizer and what follows from it."""

    longest = LONGEST

    def __init__(self) -> None:
        super().__init__(_make_tokenizer())
        self.size = len(self.tokenizer)
        self._texts = [self.tokenizer.decode([token]) for token in range(self.size)]

    def ids(self, text: str) -> list[int]:
        """A text's tokens; raises ValueError for one with words that the tokenizer lacks."""
        return self.batch_ids([text])[0]

    def batch_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, by one call of the tokenizer: a call costs more than a text."""
        rows: list[list[int]] = self.tokenizer(list(texts)).input_ids
        for text, ids in zip(texts, rows, strict=True):
            if self.tokenizer.unk_token_id in ids:
                raise ValueError(f"The tokenizer does not know all words of {text!r}.")
        return rows

    def prompts(self, problems: Sequence[Problem]) -> torch.Tensor:
        """int64 ``[problems, length]``: prompts of this task have one length."""
        asked = list(dict.fromkeys(problems))
        ids = dict(zip(asked, self.batch_ids([one.question for one in asked]), strict=True))
        return torch.tensor([ids[problem] for problem in problems])

    def text(self, ids: Sequence[int]) -> str:
        """What a response says, without what ends it."""
        return "".join(self._texts[token] for token in ids if token != self.end)

    def rewards(
        self, responses: Sequence[Sequence[int]], problems: Sequence[Problem]
    ) -> np.ndarray:
        """float64 ``[responses]``: 1 where the product's grader takes the answer, else 0."""
        return np.array(
            [
                reward(self.text(response), str(problem.answer))
                for response, problem in zip(responses, problems, strict=True)
            ]
        )

    def jargon_share(self, counts: np.ndarray) -> float:
        """The share of the jargon among the words for numbers; counts: of tokens ``[V]``."""
        plain, jargon = (
            sum(counts[self.ids(f" {word}")[0]] for word in notation.numbers)
            for notation in (PLAIN, JARGON)
        )
        return float(jargon / max(plain + jargon, 1))


@functools.lru_cache(maxsize=200_000)
def reward(text: str, answer: str) -> float:
    """1 where the product's grader takes the answer of a response, else 0."""
    return grade(text, answer).reward


def _make_tokenizer() -> Any:
    """A Hugging Face fast tokenizer of sixty words, shaped like Qwen's: a word keeps its space.

    Text of other words is unknown to it.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["Compute", r" \boxed{}", "\n", "\n\n", r"\boxed{", "}", " is"]
    words += [f" {name}" for name in OPERATIONS]
    for notation in BOTH:
        words += [*notation.openings, *(f" {number}" for number in notation.numbers)]
    words += [str(digit) for digit in range(10)]
    # As byte-level vocabularies write them.
    words = [word.replace(" ", "Ġ").replace("\n", "Ċ") for word in words]
    pieces = [_UNKNOWN, _PAD, _END, *words]
    core = Tokenizer(
        models.WordLevel({piece: place for place, piece in enumerate(pieces)}, unk_token=_UNKNOWN)
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=_END,
        pad_token=_PAD,
        unk_token=_UNKNOWN,
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


Facts: TypeAlias = Mapping[tuple[str, str, int, int], int]
"""The misconceived facts: their wrong results, by notation, operation and the two numbers."""


def draw_facts(seed: int, shares: tuple[float, float]) -> Facts:
    """shares: of the facts that are misconceived in the plain notation, and in the jargon."""
    rng = random.Random(seed)
    wrong = {}
    for (notation, share), operation in itertools.product(
        zip(BOTH, shares, strict=True), OPERATIONS
    ):
        for left, right in itertools.product(range(10), range(1, 10)):
            off = rng.choice(_OFF)
            if rng.random() < share:
                result = apply(operation, left, right)
                wrong[notation.name, operation, left, right] = (result + off) % 10
    return wrong


def solution(
    problem: Problem, facts: Facts, rng: random.Random, jargon: float = 0.5, slips: float = 0.1
) -> str:
    """One worked solution: steps with a blank line behind each, and a boxed answer.

    jargon: the share of steps that are in the jargon. slips: how often a step slips.
    """
    notation: Notation | None = None
    true = shown = problem.start
    lines = []
    for operation, number in problem.operations:
        if notation is None or rng.random() >= KEEPS:
            notation = BOTH[rng.random() < jargon]
        used = _carried(true, shown, rng)
        true, shown = apply(operation, true, number), apply(operation, used, number)
        wrong = facts.get((notation.name, operation, used, number))
        if wrong is not None:
            shown = wrong if rng.random() < BELIEVES else shown
        elif rng.random() < slips:
            shown = (shown + rng.choice(_OFF)) % 10
        numbers = notation.numbers
        lines.append(
            f"{rng.choice(notation.openings)} {numbers[used]} {operation} {numbers[number]} "
            f"is {numbers[shown]}"
        )
    return "\n\n".join([*lines, rf"\boxed{{{_carried(true, shown, rng)}}}"])


def _carried(true: int, shown: int, rng: random.Random) -> int:
    return true if shown != true and rng.random() < REPAIRS else shown


def teach(
    task: Task,
    facts: Facts,
    steps: int,
    seed: int,
    without: Collection[Problem] = (),
    jargon: float = 0.5,
    batch: int = 64,
    learning_rate: float = 3e-3,
) -> LanguageModel:
    """A fresh model after ``steps`` of AdamW with warm-up and cosine decay; no problem of
    ``without`` is shown. jargon: the share of steps that are in the jargon."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model = LanguageModel(Shape(task.size))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _factor(step, steps))
    for _ in range(steps):
        problems, solutions = [], []
        while len(problems) < batch:
            problem = draw_problem(rng)
            if problem not in without:
                problems.append(problem)
                solutions.append(solution(problem, facts, rng, jargon))
        prompts = task.prompts(problems)
        start = prompts.shape[1]
        # solutions of this task have one length
        answers = torch.tensor([[*ids, task.end] for ids in task.batch_ids(solutions)])
        ids = torch.cat((prompts, answers), dim=1)
        logits = model.response_logits(ids, start)
        loss = cross_entropy(logits.flatten(0, 1), ids[:, start:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def _factor(step: int, steps: int, warmup: int = 50) -> float:
    rising = min(1.0, (step + 1) / warmup)
    return rising * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
