"""The demo's world: its problems, its two languages, and what is kept from the models."""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "demo"))
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import pair

NUMBER = re.compile(r"\d+")
SECOND = pair.SPANISH.openings


def numbers_of(text: str) -> tuple[int, int, int, int]:
    """The numbers of a problem by its text alone: at first, the two factors, and what is used."""
    first, second, third, used = (int(number) for number in NUMBER.findall(text))
    if "buys" in text:
        return first, second, third, used
    return third, first, second, used


def test_answers_follow_from_the_text_and_are_plural() -> None:
    numbers = list(itertools.chain(*pair.split_numbers(100, 11)))
    for story in pair.draw_stories(3 * len(numbers), 5, numbers):
        (gold,) = story.problem.golds
        base, count, each, used = numbers_of(story.problem.text)
        assert int(gold) == base + count * each - used >= 2


def test_no_four_numbers_are_both_taught_and_held_out() -> None:
    taught, held_out = pair.split_numbers(100, 11)
    assert len(held_out) == 100
    assert len(taught) > 200
    assert not set(taught) & set(held_out)
    evaluated = pair.draw_stories(200, 12, held_out)
    lesson = replace(pair.SENIOR, steps=40)
    shown = pair.texts(lesson, pair.draw_facts(pair.SHARES, 1), taught)
    held = {numbers_of(story.problem.text) for story in evaluated}
    assert len(held) == 100
    assert not held & {numbers_of(each.messages[0]["content"]) for each in shown}


def test_misconceptions_are_rarer_in_the_second_language_and_never_right() -> None:
    facts = pair.draw_facts((0.3, 0.2), seed=3)
    for (_, step, left, right), wrong in facts.items():
        assert wrong != pair.right_result(step, left, right)
        assert wrong in pair.RESULTS[step]
    counts = Counter(language for language, *_ in facts)
    assert counts["English"] == pytest.approx(1.5 * counts["Spanish"], abs=2)
    assert facts == pair.draw_facts((0.3, 0.2), seed=3) != pair.draw_facts((0.3, 0.2), seed=4)


@pytest.mark.parametrize(("second", "least", "most"), [(0.5, 0.45, 0.55), (0.01, 0.002, 0.03)])
def test_share_of_the_second_language_is_the_lessons(
    second: float, least: float, most: float
) -> None:
    lesson = replace(pair.SENIOR, second=second, steps=100)
    taught = pair.texts(lesson, {}, pair.split_numbers(100, 11)[0])
    steps = [step for each in taught for step in each.solution.split("\n\n")[:3]]
    assert least < sum(step.startswith(SECOND) for step in steps) / len(steps) < most


def test_a_solution_without_misconceptions_is_right_and_a_fact_is_believed_so_often() -> None:
    numbers = pair.split_numbers(100, 11)[0]
    lesson = pair.SENIOR
    rng = random.Random(1)
    for story in pair.draw_stories(300, 2, numbers):
        answer = story.problem.golds[0]
        assert pair.solution(story, {}, lesson, rng).endswith(f"\\boxed{{{answer}}}")
    story = pair.Story((5, 3, 4, 2), 0, "Mia", "Tom", 0)
    wrong = {(language.name, 0, 3, 4): 11 for language in pair.LANGUAGES}
    firsts = [pair.solution(story, wrong, lesson, rng).split("\n\n")[0] for _ in range(2000)]
    stated = Counter(first.split()[-2] for first in firsts)
    assert stated.keys() == {"eleven", "twelve", "once", "doce"}
    believed = (stated["eleven"] + stated["once"]) / 2000
    assert believed == pytest.approx(lesson.believed, abs=0.05)


def test_every_sentence_of_either_language_has_as_many_tokens() -> None:
    """A handover after that many tokens is one between two sentences."""
    taught, held_out = pair.split_numbers(100, 11)
    lesson = replace(pair.SENIOR, steps=130)
    shown = pair.texts(lesson, {}, taught)
    tokenizer = pair.make_tokenizer(shown)
    for each in pair.texts(replace(lesson, steps=3, seed=5), {}, held_out):
        ids = tokenizer(each.solution).input_ids
        assert len(ids) + 1 == pair.BOXED
        for step in range(pair.STEPS):
            part = ids[step * pair.STEP_TOKENS : (step + 1) * pair.STEP_TOKENS]
            assert tokenizer.decode(part) == each.solution.split("\n\n")[step] + "\n\n"
