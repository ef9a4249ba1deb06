"""What the demo measures of a senior, from the files that ``tandem eval`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

import numpy as np
from evaluation import GRPO, TANDEM, Score, difference
from pair import ENGLISH, LANGUAGES, STEP_TOKENS, STEPS, Language, Story
from tokenizers import Tokenizer

from tandem_plugin.lab.evaluation.generation import handovers, schedule_label
from tandem_plugin.lab.evaluation.results import run_folder
from tandem_plugin.lab.rollouts.rollout_file import grades_file, placed_rows

TAUGHT = "taught"
RESPONSES = 2
"""To each problem, under each schedule."""
PLACES = tuple(STEP_TOKENS * steps for steps in (1, 2, 3))
"""Tokens before a handover: after one, two and three sentences."""
SAMPLING = "T = 1"

ROWS = {
    "alone": "solved alone",
    "continued": "continued by the junior",
    "read": "continued by the reader",
    "recovered": "recovered",
    "team": "team, random handoffs",
    "products": "right products, alone",
    "English": "English sentences, alone",
}
"""The table's rows, by the name of a measure."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response: what its first author wrote, what the other made of it, and its grade."""

    begun: str
    ended: str
    is_right: bool

    @property
    def sentences(self) -> list[str]:
        """The steps of the whole response, without the boxed answer."""
        return [part for part in f"{self.begun}{self.ended}".split("\n\n") if "boxed" not in part]


@dataclass(frozen=True)
class Answers:
    """The evaluation of one senior: its responses to each story."""

    folder: Path
    senior: str
    tokenizer: Path
    stories: Sequence[Story]

    def alone(self) -> list[list[Answer]]:
        """By problem and sample: the senior's own."""
        return self._read("junior", "solo")

    def team(self) -> list[list[Answer]]:
        """The team's, who take turns at random after each sentence."""
        return self._read("junior", "sentence")

    def handed_over(self, other: str, first: str) -> list[list[list[Answer]]]:
        """By place, problem and sample: one model's endings of what ``first`` began."""
        return [
            self._read(other, schedule_label(schedule), schedule["after"])
            for schedule in handovers(PLACES)
            if schedule["first"] == first
        ]

    def _read(self, other: str, schedule: str, place: int | None = None) -> list[list[Answer]]:
        file = run_folder(self.folder, "handoff", self.senior, other, schedule) / "problems.jsonl"
        right = {
            (problem, sample): row["outcome"] == "correct"
            for problem, sample, row in placed_rows(grades_file(file))
        }
        decoder = _decoder(self.tokenizer)
        answers: list[list[Answer]] = [[] for _ in self.stories]
        for problem, sample, row in sorted(placed_rows(file), key=lambda placed: placed[:2]):
            begun, ended = (
                decoder.decode(part, skip_special_tokens=True)
                for part in (
                    row["response_ids"][:place],
                    row["response_ids"][place:] if place else [],
                )
            )
            answers[problem].append(Answer(begun, ended, right[problem, sample]))
        return answers


@lru_cache(maxsize=1)
def _decoder(tokenizer: Path) -> Tokenizer:
    return Tokenizer.from_file(str(tokenizer / "tokenizer.json"))


def scores_of(answers: Answers, steps: int, seed: int) -> list[Score]:
    """One row for each measure of a senior."""
    alone = answers.alone()
    counted = {
        "alone": [alone],
        "continued": answers.handed_over("junior", "senior"),
        "read": answers.handed_over("reader", "senior"),
        "recovered": answers.handed_over("junior", "junior"),
        "team": [answers.team()],
    }
    solved = {
        name: [[answer.is_right for part in parts for answer in part[n]] for n in range(len(alone))]
        for name, parts in counted.items()
    }
    solved["products"] = [
        [has_right_product(answer, story) for answer in samples]
        for samples, story in zip(alone, answers.stories, strict=True)
    ]
    solved["English"] = [
        [language == ENGLISH for answer in samples for language in languages(answer)]
        for samples in alone
    ]
    return [
        Score(answers.senior, steps, seed, name, SAMPLING, len(rows[0]), tuple(map(sum, rows)))
        for name, rows in solved.items()
    ]


def has_right_product(answer: Answer, story: Story) -> bool:
    """Whether the first sentence states the product of the problem's factors, in any language."""
    _, count, each, _ = story.numbers
    first = answer.sentences[:1]
    return any(
        sentence == language.sentence(0, count, each, count * each, story.thing)
        for language in LANGUAGES
        for sentence in first
    )


def languages(answer: Answer) -> list[Language | None]:
    """The language of each of the :data:`STEPS` sentences, by its first word; else None."""
    openings = {
        language.openings[step]: language for language in LANGUAGES for step in range(STEPS)
    }
    by_sentence = [openings.get(sentence.split(" ")[0]) for sentence in answer.sentences[:STEPS]]
    return [*by_sentence, *[None] * (STEPS - len(by_sentence))]


def table(scores: Sequence[Score]) -> list[list[str]]:
    """A heading and a row for each measure: as taught, after each method, and the difference.

    Of several seeds the means.
    """
    by_place = _by_place(scores)
    rows = [["%", "as taught", f"after {GRPO}", f"after {TANDEM}", f"{TANDEM} - {GRPO}"]]
    for name, title in ROWS.items():
        cells = [by_place[trained, name] for trained in (TAUGHT, GRPO, TANDEM)]
        rows.append([title, *map(percent, cells), difference(cells[2], cells[1])])
    return rows


ERRORS = 2.0
"""Standard errors from which on a difference is taken for one."""


def verdict(scores: Sequence[Score]) -> list[str]:
    """What a run shows, in sentences: first what speaks against tandem."""
    by_place = _by_place(scores)
    against, shown = [], []
    for name, who in (("alone", "alone"), ("continued", "continued by the junior")):
        tandem, grpo = (by_place[trained, name] for trained in (TANDEM, GRPO))
        rates = f"{percent(tandem)}% after tandem, {percent(grpo)}% after {GRPO}"
        text = difference(tandem, grpo)
        points, error = map(float, text.split(" ± "))
        if points < -ERRORS * error:
            against.append(f"Against tandem: {who}, its senior solves less: {rates} ({text}).")
        elif name == "continued" and points <= ERRORS * error:
            against.append(f"Not shown in this run: {who}, {rates} ({text}).")
        else:
            shown.append(f"Solved {who}: {rates} ({text}).")
    return against + shown


def table_of_seeds(scores: Sequence[Score]) -> list[list[str]]:
    """A heading and a row for each measure: of each seed, GRPO and tandem, and their difference."""
    by_place = _by_place(scores)
    seeds = sorted({score.seed for score in scores})
    rows = [[f"{GRPO} / {TANDEM}, %", *(f"seed {seed}" for seed in seeds)]]
    for name, title in ROWS.items():
        pairs = zip(by_place[GRPO, name], by_place[TANDEM, name], strict=True)
        cells = [f"{percent([a])} / {percent([b])} ({difference([b], [a])})" for a, b in pairs]
        rows.append([title, *cells])
    return rows


def _by_place(scores: Sequence[Score]) -> dict[tuple[str, str], list[Score]]:
    """The scores by senior and measure, in the order of their seeds."""
    by_place: dict[tuple[str, str], list[Score]] = {}
    for score in sorted(scores, key=attrgetter("seed")):
        by_place.setdefault((score.trained, score.authors), []).append(score)
    return by_place


def percent(scores: Sequence[Score]) -> str:
    """The mean of some rows, of several seeds."""
    return f"{100 * np.mean([score.rates.mean() for score in scores]):.1f}"
