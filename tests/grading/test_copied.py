"""An expression copied from the prompt, or left unsolved, earns nothing."""

from __future__ import annotations

import pytest

from tandem_plugin.grading import Grader

COPIED = (
    (r"Compute $200\cdot 3$.", r"200\cdot3", "600"),
    (r"Compute $200\cdot 3$.", r"200 \times 3", "600"),
    *(
        (r"Compute $200\cdot 3$.", wrapped, "600")
        for wrapped in (
            r"(A) 200\cdot 3",
            r"\textbf{(A)}\ 200\cdot 3",
            r"\underline{200\cdot 3}",
            r"{\rm 200}\cdot{\bf 3}",
            r"**200\cdot 3**",
            r"\begin{aligned}&200\cdot 3\end{aligned}",
            r"200\cdot\hspace{1em}3\tag{1}",
            r"\text{Answer: }200\cdot 3",
        )
    ),
    (r"What is 2+3*4?", "2+3*4", "14"),
    (r"Simplify $\frac{x^2-1}{x-1}$.", r"\dfrac{x^2-1}{x-1}", "x+1"),
    (r"Find the value of $x=\sqrt{8}$ in simplest form.", r"x=\sqrt{8}", r"2\sqrt2"),
    (r"Evaluate \(\sin 60^\circ+1\).", r"\sin 60^\circ+1", r"\frac{\sqrt3}{2}+1"),
    (r"Let $f(x)=(x+1)^2+\sqrt{x}$. Expand $f$.", "(x+1)^2", "x^2+2x+1"),
)
SOLVED = (
    (r"Compute $200\cdot 3$.", "600", "600"),
    (r"What is $12+3$?", "2+13", "15"),
    (r"Which is larger, $2^{100}$ or $3^{50}$?", "2^{100}", "2^{100}"),
    (r"A coin shows heads with probability 1/2. What is 1 - 1/2?", "1/2", "0.5"),
    (r"Solve $x=5$ or not. It is 5.", "5", "5.0"),
    (r"Factor $x^2-1$.", "(x-1)(x+1)", "(x+1)(x-1)"),
    (r"Which is larger, $101_2$ or $11_3$?", "101_{2}", "101_2"),
    (r"Is the final score 3-0 or 0-3?", r"3 - 0\text{ goals}", "3-0"),
    (r"Write $42_{10}$ without its base.", "42", "42_{10}"),
)
UNSOLVED = (
    ("2x=10", "5"),
    ("2x=10", "x=5"),
    (r"\frac{1}{x-5}>0", r"(5,\infty)"),
    ("6-(4x+3)>2x", r"x<\frac12"),
    ("x^2=4", r"\{2,-2\}"),
)
RESTATED = (
    (r"Convert the number 42 to base 8.", "42", "52_8"),
    (r"Convert $42_{10}$ to base 8.", "42_{10}", "52_8"),
    (r"Convert $52_8$ to base 10.", "52_8", "42"),
    (r"Write the hexadecimal 0x2A in base ten.", "0x2A", "42"),
    (r"Write $101010_2$ in base sixteen.", "101010_2", "2A_{16}"),
    (r"The team won 5-2. By how many goals?", "5-2", "3"),
)


@pytest.mark.parametrize(("prompt", "answer", "gold"), COPIED)
def test_an_expression_of_the_prompt_is_copied(grader: Grader, prompt: str, answer: str, gold: str):
    grade = grader.grade(f"\\boxed{{{answer}}}", gold, prompt)
    assert (grade.outcome, grade.reward) == ("copied", 0.0)
    assert grader.grade(f"\\boxed{{{answer}}}", gold).outcome == "correct"


@pytest.mark.parametrize(("prompt", "answer", "gold"), SOLVED)
def test_an_answer_is_no_copy(grader: Grader, prompt: str, answer: str, gold: str):
    assert grader.grade(f"\\boxed{{{answer}}}", gold, prompt).outcome == "correct"


def test_the_gold_as_it_is_written_is_no_copy(grader: Grader):
    prompt = r"Is $\sqrt{8}+1$ in simplest form? Write it so."
    assert grader.grade(r"\boxed{\sqrt{8}+1}", r"\sqrt8 + 1", prompt).outcome == "correct"
    assert grader.grade(r"\boxed{\sqrt{8}+1}", r"2\sqrt2+1", prompt).outcome == "copied"


@pytest.mark.parametrize(("answer", "gold"), UNSOLVED)
def test_what_is_unsolved_is_wrong(grader: Grader, answer: str, gold: str):
    assert grader.grade(f"\\boxed{{{answer}}}", gold).outcome == "incorrect"


@pytest.mark.parametrize(
    "around",
    ["{}", "<|im_start|>user\n{}<|im_end|>\n", "User: {}\n\nAssistant:", "[INST] {} [/INST]"],
)
def test_a_bare_expression_is_copied_from_any_prompt(grader: Grader, around: str):
    prompt = around.format("17\\cdot 23\nPlease reason step by step.")
    assert grader.grade(r"\boxed{17\cdot 23}", "391", prompt).outcome == "copied"


@pytest.mark.parametrize(("prompt", "answer", "gold"), RESTATED)
def test_a_question_restated_is_wrong_whether_the_grader_knows_it_or_not(
    grader: Grader, prompt: str, answer: str, gold: str
):
    for known in (prompt, None):
        assert grader.grade(f"\\boxed{{{answer}}}", gold, known).reward == 0.0
    assert grader.grade(f"\\boxed{{{gold}}}", gold, prompt).reward == 1.0
