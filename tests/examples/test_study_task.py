"""The study's task in two notations: its problems, the text it teaches, and its tokenizer."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "study"))

pytest.importorskip("transformers", reason="the tokenizer is Hugging Face's")

from light.task import LONGEST, Facts, Task, draw_facts, draw_problem, draw_problems, solution

from tandem_plugin.lab.data.problem import Problem as AskedProblem
from tandem_plugin.lab.data.problem import PromptTemplate

SIGNS = {"plus": "+", "minus": "-", "times": "*"}
NOTHING_WRONG: Facts = {}


@pytest.fixture(scope="module")
def task() -> Task:
    return Task()


def test_answer_is_the_result_modulo_ten():
    for problem in draw_problems(200, 3):
        expression = str(problem.start)
        for operation, number in problem.operations:
            expression = f"({expression} {SIGNS[operation]} {number}) % 10"
        assert problem.answer == eval(expression)  # arithmetic of this very test


def test_solution_without_mistakes_is_right_in_every_notation(task: Task):
    rng = random.Random(0)
    for jargon in (0.0, 0.5, 1.0):
        problems = [draw_problem(rng) for _ in range(50)]
        texts = [solution(one, NOTHING_WRONG, rng, jargon, slips=0.0) for one in problems]
        solutions = [task.ids(text) for text in texts]
        assert task.rewards(solutions, problems).tolist() == [1.0] * 50
        assert {len(ids) for ids in solutions} == {31}  # and the token that ends it
    assert LONGEST > 32


def test_text_becomes_its_tokens_and_back(task: Task):
    rng = random.Random(4)
    facts = draw_facts(1, (0.25, 0.25))
    for _ in range(50):
        text = solution(draw_problem(rng), facts, rng)
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
    turns = PromptTemplate().messages(asked)
    rendered = task.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert rendered == problem.question
    assert task.prompts([problem]).tolist() == [task.ids(problem.question)]
