from __future__ import annotations

import pytest
from refused import refused

from tandem_plugin.lab.data import INSTRUCTION, Problem, PromptTemplate
from tandem_plugin.lab.data.problem import words_of


def problem(*turns: tuple[str, str]) -> Problem:
    return Problem(1, tuple({"role": role, "content": text} for role, text in turns), ("3",))


@pytest.mark.parametrize(
    "text",
    [
        f"Add.\n{INSTRUCTION}",
        r"Add. Put your answer in \boxed{}.",
        r"Add. Give it inside $\boxed{\text{answer}}$.",
    ],
)
def test_a_problem_that_asks_for_a_box_is_not_told_twice(text: str):
    assert PromptTemplate().messages(problem(("user", text))) == [{"role": "user", "content": text}]


@pytest.mark.parametrize("text", ["Add 1.", r"Part 0 came to \boxed{7}. What is part 1?", "{x}"])
def test_the_instruction_follows_the_problem_also_where_a_part_is_solved(text: str):
    (turn,) = PromptTemplate().messages(problem(("user", text)))
    assert turn["content"] == f"{text}\n{INSTRUCTION}"


def test_the_last_turn_is_told_and_others_stay():
    turns = [("system", "Be kind."), ("user", "Hello."), ("assistant", "Hi."), ("user", "Add.")]
    messages = PromptTemplate().messages(problem(*turns))
    assert [turn["content"] for turn in messages[:-1]] == ["Be kind.", "Hello.", "Hi."]
    assert messages[-1]["content"].startswith("Add.\n")


def test_template_instruction_and_system_can_be_replaced():
    template = PromptTemplate("Q: {problem} ({instruction})", "box it", "Be brief.")
    assert template.messages(problem(("system", "Be kind."), ("user", "Add."))) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Q: Add. (box it)"},
    ]
    with refused("TP713"):
        PromptTemplate("no place")


def test_braces_of_a_problem_are_left_alone():
    (turn,) = PromptTemplate().messages(problem(("user", "Let {instruction} be {x}.")))
    assert turn["content"].startswith("Let {instruction} be {x}.")


@pytest.mark.parametrize(
    "text",
    ["Find $a$,  given B=3.\nPut it in \\boxed{}.", f"find A given b = 3 {INSTRUCTION}"],
)
def test_words_are_those_of_the_question_alone(text: str):
    assert words_of(problem(("user", text))) == ("find", "a", "given", "b", "3")
