from __future__ import annotations

import pytest
from refused import refused

from tandem_plugin.lab.data import INSTRUCTION, Problem, PromptTemplate
from tandem_plugin.lab.data.instructions import asks_for_no_box
from tandem_plugin.lab.data.problem import words_of


def problem(*turns: tuple[str, str]) -> Problem:
    return Problem(1, tuple({"role": role, "content": text} for role, text in turns), ("3",))


@pytest.mark.parametrize(
    "text",
    [
        f"Add.\n{INSTRUCTION}",
        r"Add. Put your answer in \boxed{}.",
        r"Add. Give it inside $\boxed{\text{answer}}$.",
        r"Add. Write it as \boxed{your final answer}.",
        r"Add. End with: The answer is \boxed{...}",
        "Add. The final answer must be boxed.",
        "Add. Box your final answer.",
    ],
)
def test_a_problem_that_asks_for_a_box_is_not_told_twice(text: str):
    messages = PromptTemplate().messages(problem(("user", text)))
    assert messages == [{"role": "user", "content": text}]
    assert not asks_for_no_box(messages)


OTHER_FORMS = [
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    'Add.\n\nRemember to put your answer on its own line after "Answer:".',  # DAPO
    'Add. Let\'s think step by step and output the final answer after "####".',  # verl's GSM8K
    "Add. Put it in <answer> </answer> tags, i.e., <answer> answer here </answer>.",  # R1-Zero
    "Add. The last line of your response should be of the following format: 'Answer: $LETTER' "
    "(without quotes) where LETTER is one of ABCD.",  # simple-evals
    "Add. Finish with ANSWER: [number].",
    "Add. End with `Answer: {answer}`.",
]


@pytest.mark.parametrize("text", OTHER_FORMS)
@pytest.mark.parametrize("role", ["user", "system"])
def test_a_problem_that_asks_for_another_form_gets_no_second_instruction(text: str, role: str):
    turns = [("user", text)] if role == "user" else [("system", text), ("user", "Add.")]
    messages = PromptTemplate().messages(problem(*turns))
    assert [turn["content"] for turn in messages] == [text for _, text in turns]
    assert asks_for_no_box(messages)  # which is said, since the rewards read boxes


def test_an_instruction_in_the_system_turn_is_one_and_one_that_is_replaced_is_none():
    tagged = PromptTemplate(system="Use <answer> tags.").messages(problem(("user", "Add.")))
    assert [turn["content"] for turn in tagged] == ["Use <answer> tags.", "Add."]
    turns = ("system", "Use <answer> tags."), ("user", "Add.")
    replaced = PromptTemplate(system="Be brief.").messages(problem(*turns))
    assert [turn["content"] for turn in replaced] == ["Be brief.", f"Add.\n{INSTRUCTION}"]


@pytest.mark.parametrize(
    "text",
    [
        "Add 1.",
        r"Part 0 came to \boxed{7}. What is part 1?",
        "{x}",
        "What is the answer in the form a + b?",
        "Write the line in the form y = mx. Answer: ____",
        "Q: 1 + 1?\nAnswer: $2$\nQ: 2 + 2?",
        "A box holds 3 boxes. What is the final number in a box?",
        "### Part 1\n#### (a) Find x.",
    ],
)
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
    with refused("template-without-problem"):
        PromptTemplate("no place")


@pytest.mark.parametrize("part", ["template", "instruction", "system"])
def test_half_a_character_is_rejected_wherever_it_comes_from(part: str):
    with refused("text-lone-surrogate"):
        PromptTemplate(**{part: "{problem} \udc80"})


def test_braces_of_a_problem_are_left_alone():
    (turn,) = PromptTemplate().messages(problem(("user", "Let {instruction} be {x}.")))
    assert turn["content"].startswith("Let {instruction} be {x}.")


@pytest.mark.parametrize(
    "text",
    [
        "Find $a$,  given B=3.\nPut it in \\boxed{}.",
        f"find A given b = 3 {INSTRUCTION}",
        "Find a, given b = 3\nEnd with Answer: $Answer.",
    ],
)
def test_words_are_those_of_the_question_alone(text: str):
    assert words_of(problem(("user", text))) == ("find", "a", "given", "b", "3")
