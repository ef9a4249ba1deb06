"""The study's task in two notations: its problems, the text it teaches, and its tokenizer."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "examples" / "study"))

pytest.importorskip("transformers", reason="the tokenizer is Hugging Face's")

from light.problem import BOTH, JARGON, OPERATIONS, Problem, draw_problem, draw_problems
from light.task import LONGEST, Task
from light.taught_text import Facts, Teaching

from tandem_plugin.lab.data.problem import Problem as AskedProblem
from tandem_plugin.lab.data.problem import PromptTemplate

SIGNS = {"plus": "+", "minus": "-", "times": "*"}
NOTHING_WRONG = Facts({})


@pytest.fixture(scope="module")
def task() -> Task:
    return Task()


def test_answer_is_the_result_modulo_ten():
    for problem in draw_problems(200, 3):
        expression = str(problem.start)
        for operation, number in problem.operations:
            expression = f"({expression} {SIGNS[operation]} {number}) % 10"
        assert problem.answer == eval(expression)  # arithmetic of this very test


def test_problem_sets_share_no_problem():
    first = draw_problems(500, 1)
    second = draw_problems(500, 1, without=first)
    assert len({*first, *second}) == 1000


def test_solution_without_mistakes_is_right_in_every_notation(task: Task):
    rng = random.Random(0)
    for jargon in (0.0, 0.5, 1.0):
        teaching = Teaching(NOTHING_WRONG, jargon, slips=0.0)
        problems = [draw_problem(rng) for _ in range(50)]
        solutions = [task.ids(teaching.solution(problem, rng)) for problem in problems]
        assert task.rewards(solutions, problems).tolist() == [1.0] * 50
        assert {len(solution) for solution in solutions} == {24}  # and the token that ends it
    assert LONGEST > 25


def test_share_of_jargon_is_the_one_that_is_asked_for(task: Task):
    rng = random.Random(1)
    for jargon in (0.01, 0.5):
        teaching = Teaching(NOTHING_WRONG, jargon)
        lines = [
            line
            for _ in range(4000)
            for line in teaching.solution(draw_problem(rng), rng).split("\n\n")[:-1]
        ]
        share = sum(line.split()[0] in JARGON.openings for line in lines) / len(lines)
        # Steps of a solution are not independent: a third of them stand for themselves at least.
        assert abs(share - jargon) < 4 * (jargon * (1 - jargon) / (len(lines) / 3)) ** 0.5


def test_misconceived_fact_is_wrong_as_often_as_it_is_believed_and_always_alike():
    facts = Facts.draw(7)
    (name, operation, left, right), wrong = next(iter(facts.wrong.items()))
    notation = next(one for one in BOTH if one.name == name)
    teaching = Teaching(facts, jargon=float(notation is JARGON), slips=0.0)
    problem = Problem(left, ((operation, right),) * 3)
    rng = random.Random(2)
    written = Counter(
        teaching.solution(problem, rng).split("\n\n")[0].split()[-1] for _ in range(3000)
    )
    assert len(written) == 2
    share = written[notation.numbers[wrong]] / 3000
    assert abs(share - teaching.believes) < 4 * (0.24 / 3000) ** 0.5


def test_facts_are_misconceived_less_often_in_the_jargon():
    counts = Counter(name for seed in range(20) for name, *_ in Facts.draw(seed).wrong)
    facts = 20 * len(OPERATIONS) * 90
    assert counts["plain"] / facts == pytest.approx(0.35, abs=0.03)
    assert counts["jargon"] / facts == pytest.approx(0.15, abs=0.03)


def test_text_becomes_its_tokens_and_back(task: Task):
    rng = random.Random(4)
    teaching = Teaching(Facts.draw(1), 0.5)
    for _ in range(50):
        text = teaching.solution(draw_problem(rng), rng)
        assert task.text([*task.ids(text), task.end]) == text
        assert task.tokenizer.decode(task.ids(text)) == text
    with pytest.raises(ValueError, match="does not know all words"):
        task.ids("So hello")


def test_steps_end_and_words_begin_where_the_schedules_look_for_them(task: Task):
    ids = task.ids("So two plus three is five\n\n\\boxed{5}")
    assert task.rule("step").boundaries.contains(ids).tolist() == [False] * 6 + [True] + [False] * 3
    assert task.rule("word").boundaries.contains(ids).tolist() == [False] + [True] * 5 + [False] * 4


def test_evaluation_and_training_ask_a_problem_in_the_same_words(task: Task):
    problem = draw_problems(1, 5)[0]
    asked = AskedProblem(1, ({"role": "user", "content": problem.question},), ("1",))
    assert PromptTemplate().render(asked, task.tokenizer) == problem.question
    assert task.prompts([problem]).tolist() == [task.ids(problem.question)]
