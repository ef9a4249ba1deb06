"""One reader of golds for every door: what a gold is read as, and what cannot be read."""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tandem_plugin.grading import Grader
from tandem_plugin.grading.generated import gold_of
from tandem_plugin.grading.golds import final_answer, labelled, read_golds

READ: tuple[tuple[Any, tuple[str, ...]], ...] = (
    ("5\n", ("5",)),
    (5, ("5",)),
    (27.0, ("27",)),
    (0.25, ("0.25",)),
    (Decimal("27.0"), ("27",)),
    (Decimal("0.50"), ("0.50",)),
    (Decimal("1E+3"), ("1000",)),
    (Fraction(1, 2), ("1/2",)),
    (np.float32(0.5), ("0.5",)),
    ([np.int64(5), "5", "6"], ("5", "6")),
    (np.array(["4", "5"], dtype=object), ("4", "5")),
    (True, ("Yes", "True")),
    ("2 + 3 = <<2+3=5>>5\n#### 5", ("5",)),
    ("#### 1,080", ("1080",)),
    ("#### $1,080", ("$1,080",)),
    ("#### Solution\nWe add: \\boxed{5}.", ("5",)),
    ("\\boxed{5}\n#### Remark\nOr so.", ("5",)),
    ("\\boxed{1} papers and \\boxed{2} bins", ("1, 2",)),
    ("The answer is 5.", ("5",)),
    ("We add.\n\n**Final Answer:** $\\frac{1}{2}$", ("$\\frac{1}{2}$",)),
    ("Answer: A) 5", ("A) 5",)),
    ("The answer is 4? No, the answer is 5.", ("5",)),
    ("<think>2 + 3</think>\n<answer>\\boxed{5}</answer>", ("5",)),
    ("There is no answer", ("There is no answer",)),
    ('["A", "C"]', ('["A", "C"]',)),
    (["A", "C"], ("A", "C")),
)
UNUSABLE = (None, "", "  ", [], [None], ["5", ""], math.nan, "NaN", Decimal("NaN"), math.inf)
UNUSABLE += ("N/A", "<NA>", "null", "?", "-", "TBD")
UNUSABLE += ({"x": 1}, b"5", [["5"]], Decimal("sNaN"), Decimal("1E+999999999"), 10**5_000)
UNREAD = (
    "She sold 72 clips altogether.",
    "5 because of reasons",
    "5 apples",
    r"\boxed{5",
    r"\boxed{}",
    "A) 5, B) 6",
    ["6", "about 5"],
)


@pytest.mark.parametrize(("gold", "texts"), READ, ids=[repr(gold) for gold, _ in READ])
def test_a_gold_is_read_alike_once_and_again(gold: object, texts: tuple[str, ...]) -> None:
    assert read_golds(gold) == texts
    assert read_golds(texts) == texts


@pytest.mark.parametrize("gold", UNUSABLE, ids=range(len(UNUSABLE)))
@pytest.mark.parametrize("response", [r"\boxed{5}", "no box"])
def test_what_is_no_gold_is_an_error(grader: Grader, gold: object, response: str) -> None:
    assert isinstance(read_golds(gold), str)
    grade = grader.grade(response, gold)
    assert (grade.outcome, grade.rule) == ("error", "gold")


@pytest.mark.parametrize("gold", UNREAD, ids=map(repr, UNREAD))
def test_a_gold_that_cannot_be_read_is_an_error_but_for_its_own_text(
    grader: Grader, gold: str | list[str]
) -> None:
    grade = grader.grade(r"\boxed{4}", gold)
    assert (grade.outcome, grade.rule) == ("error", "unread_gold")
    text = gold if isinstance(gold, str) else gold[-1]
    if text.count("{") == text.count("}") and "boxed" not in text:
        assert grader.grade(f"\\boxed{{{text}}}", gold).outcome == "correct"


@pytest.mark.parametrize("gold", ["Paris", "not unique", "2 sqrt(3)", r"\text{north-east}", "abc"])
def test_words_and_products_are_read(grader: Grader, gold: str) -> None:
    assert grader.grade(r"\boxed{4}", gold).outcome == "incorrect"


def test_only_the_first_gold_that_cannot_be_read_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Grader() as grader, caplog.at_level(logging.WARNING):
        golds = ["She sold 72 clips.", None, {}, "5"] * 8
        grades = grader.grade_batch((r"\boxed{72}", gold) for gold in golds)
    assert [grade.outcome for grade in grades] == ["error", "error", "error", "incorrect"] * 8
    (warning,) = caplog.messages
    assert "A gold answer" in warning


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("A) 5", "5 A (A) (A)5 A)~5", "B 6 a (B)5 A)6"),
        (r"$\textbf{(C)}\ \frac12$", r"0.5 C \text{C} \text{(C)}\frac12", "A 0.4"),
        ("D. -3", "-3 D", "3 C"),
        ("(B) 2 cm", "2 B", "3 C"),
        ('["A", "C"]', 'A,C C,A ["A","C"]', "A C A,B A,B,C"),
        ('["5"]', "5", "6"),
        ("[1, 2]", "[1,2]", "1 2"),
    ],
)
def test_a_labelled_choice_and_a_list_in_text_are_one_answer(
    grader: Grader, gold: str, right: str, wrong: str
) -> None:
    for answers, outcome in ((right, "correct"), (wrong, "incorrect")):
        for answer in answers.split():
            assert grader.grade(f"\\boxed{{{answer}}}", gold).outcome == outcome, answer


@pytest.mark.parametrize(
    "text", ["A", "(A)", "A) 5, B) 6", "P(A) = 1", r"(A) \cup (B)", "C. elegans", "E = 5", "x) 5"]
)
def test_other_letters_are_no_label(text: str) -> None:
    assert labelled(text) is None


def test_a_generated_problems_gold_is_left_as_it_is() -> None:
    gold = gold_of("needle_haystack", {"answer": "The answer is #### 5", "metadata": {}})
    assert read_golds(gold) == (gold,)


def test_long_solutions_are_read_in_linear_time() -> None:
    for text in ("\n" * 200_000, "answer " * 100_000, "####" * 100_000, "<answer>" * 50_000):
        assert not (final_answer(text) or "").strip("#")


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        (27.0, "27"),
        (["4", "5"], "5"),
        (["3", r"\sqrt{2}"], "2^{1/2}"),
        (0.25, r"\frac14"),
        (r"\boxed{1} papers and \boxed{2} bins", "2, 1"),
    ],
)
def test_golds_come_in_many_forms(grader: Grader, gold: object, response: str) -> None:
    grade = grader.grade(f"\\boxed{{{response}}}", gold)
    assert grade.outcome == "correct"
    assert grade.gold is not None
