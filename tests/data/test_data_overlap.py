from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.lab.data import INSTRUCTION, Problem, find_overlaps

WORDS = [f"word{i}" for i in range(2_000)]


def asked(row: int, text: str) -> Problem:
    return Problem(row, ({"role": "user", "content": text},), ("1",))


def made_up(count: int, seed: int, words: int = 40) -> list[Problem]:
    draw = random.Random(seed)
    return [asked(row, " ".join(draw.choices(WORDS, k=words))) for row in range(1, count + 1)]


def test_equal_problems_are_found_whatever_their_case_spacing_and_instruction():
    train = [asked(1, "Find the sum of $a$ and $b$ where a = 3, b = 4 and so on.")]
    evaluation = [
        asked(7, f"find the SUM of a and b, where $a=3$,  $b=4$ and so on\n{INSTRUCTION}")
    ]
    (found,) = find_overlaps(train, evaluation)
    assert (found.train_row, found.evaluation_row, found.is_exact) == (1, 7, True)


def test_other_numbers_make_another_problem():
    train = [asked(1, "What is 17 times 23?")]
    assert find_overlaps(train, [asked(1, "What is 17 times 24?")]) == []


def test_a_few_changed_words_are_a_near_duplicate():
    (problem,) = made_up(1, 0)
    words = problem.text.split()
    changed = asked(9, " ".join([*words[:20], "other", *words[21:]]))
    (found,) = find_overlaps([problem], [changed])
    assert not found.is_exact
    assert found.similarity > 0.7


def test_a_problem_within_a_longer_one_is_found():
    (inner,) = made_up(1, 1)
    (outer,) = made_up(1, 2, words=200)
    (found,) = find_overlaps([asked(5, f"{outer.text} {inner.text} {outer.text}")], [inner])
    assert found.similarity < 0.5
    assert found.containment >= 0.8


def test_unrelated_problems_do_not_overlap():
    assert find_overlaps(made_up(300, 3), made_up(50, 4)) == []


@given(st.lists(st.text(alphabet="ab c", max_size=30), max_size=6))
def test_every_problem_overlaps_itself_exactly(texts: list[str]):
    problems = [asked(row, text) for row, text in enumerate(texts, 1)]
    found = {
        (one.train_row, one.evaluation_row)
        for one in find_overlaps(problems, problems)
        if one.is_exact
    }
    assert {(one.row, one.row) for one in problems} <= found


def test_ten_thousand_problems_against_five_hundred_take_seconds():
    train, evaluation = made_up(10_000, 5), made_up(500, 6)
    train[1234] = asked(1235, evaluation[77].text)
    began = time.process_time()
    (found,) = find_overlaps(train, evaluation)
    assert (found.train_row, found.evaluation_row) == (1235, 78)
    assert time.process_time() - began < 10
