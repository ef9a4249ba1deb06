from __future__ import annotations

import json
from pathlib import Path

import pytest
from refused import refused
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.data import INSTRUCTION, Problem, PromptTemplate
from tandem_plugin.lab.data.instructions import asks_for_no_box


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


@pytest.mark.parametrize("template", ["Q: {problem}", "{problem} Put it in \\boxed{}."])
def test_an_instruction_that_no_prompt_would_have_is_rejected(template: str):
    with refused("template-without-instruction", template=template, instruction="Box it!"):
        PromptTemplate(template, "Box it!")
    for instruction in ("", " "):
        assert PromptTemplate(template, instruction).messages(problem(("user", "Add.")))


@pytest.mark.parametrize("name", ["Problem", "answer", "question", "instructions"])
def test_a_name_that_nothing_replaces_is_rejected(name: str):
    for text in (
        f"{{problem}}\n{{{name}}} {{instruction}}",
        f"{{{name}}}{{problem}}{{instruction}}",
    ):
        with refused("template-name-unknown", name=name):
            PromptTemplate(text)


@pytest.mark.parametrize(
    "text",
    [r"\boxed{answer}", r"x^{n}", r"x_{n}", r"\frac{a}{b}", "{ name }", "{}", r"\sqrt[3]{x}"],
)
def test_braces_of_tex_in_a_template_stay(text: str):
    (turn,) = PromptTemplate(f"{{problem}} {text} {{instruction}}", "now").messages(
        problem(("user", "Add."))
    )
    assert turn["content"] == f"Add. {text} now"


def test_a_template_that_says_itself_how_to_answer_needs_no_instruction(tmp_path: Path):
    file, out = tmp_path / "a.jsonl", tmp_path / "out"
    file.write_text('{"problem": "Add.", "answer": 3}\n')
    command = ["data", "prepare", str(file), "--to", "openrlhf", "--out", str(out)]
    done = CliRunner().invoke(app, [*command, "--template", "{problem} Use \\boxed{}."])
    assert done.exit_code == 0, done.output
    assert json.loads((out / "manifest.json").read_text())["instruction"] == ""
    assert json.loads((out / "train.jsonl").read_text())["input"][0]["content"].endswith("boxed{}.")
    for options in (["--template", "Q: {problem}"], ["--template", "Q: {problem} {x}"]):
        done = CliRunner().invoke(app, [*command, *options])
        assert (done.exit_code, "[template-" in done.stderr) == (1, True), done.output


@pytest.mark.parametrize("part", ["template", "instruction", "system"])
def test_half_a_character_is_rejected_wherever_it_comes_from(part: str):
    with refused("text-lone-surrogate"):
        PromptTemplate(**{part: "{problem} \udc80"})


def test_braces_of_a_problem_are_left_alone():
    (turn,) = PromptTemplate().messages(problem(("user", "Let {instruction} be {x}.")))
    assert turn["content"].startswith("Let {instruction} be {x}.")
    (turn,) = PromptTemplate(instruction="Use {problem}.").messages(problem(("user", "Add.")))
    assert turn["content"] == "Add.\nUse {problem}."
