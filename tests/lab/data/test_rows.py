"""One schema: what a row asks, what its golds are, and which rows no prompt can hold."""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_pictures import picture, stored

from tandem_plugin.grading import grade
from tandem_plugin.lab.data.problem import Problem
from tandem_plugin.lab.data.rows import REQUEST, Row, RowError, problem_of

pytest.importorskip("sympy")

USER = {"role": "user", "content": "Add."}
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.mark.parametrize(
    ("asked", "messages", "raw"),
    [
        (" Add. ", (USER,), " Add. "),
        ([USER], (USER,), None),
        ([SYSTEM, USER], (SYSTEM, USER), None),
        (USER, (USER,), None),
        ([USER, {"role": "assistant", "content": "3"}], (USER,), None),
        ([{**USER, "weight": 1, "name": None}], (USER,), None),
        ([{"role": "user", "content": [{"type": "text", "text": "Add."}]}], (USER,), None),
        ('[{"role": "user"}]', ({"role": "user", "content": '[{"role": "user"}]'},), None),
    ],
)
def test_a_text_is_the_users_and_a_chat_ends_with_the_user(
    asked: Any, messages: tuple[dict[str, str], ...], raw: str | None
):
    problem = problem_of(7, Row(asked, 3))
    text = asked if isinstance(asked, str) else None
    assert problem == Problem(7, messages, ("3",), raw if raw is not None else text)


@pytest.mark.parametrize(
    ("answer", "golds"),
    [
        (3, ("3",)),
        (27.0, ("27",)),
        (["3\n", "3.0"], ("3", "3.0")),
        (True, ("Yes", "True")),
        ("1 + 2 = 3\n#### 3", ("3",)),
        (r"so \boxed{\frac{1}{2}}.", (r"\frac{1}{2}",)),
        ('["A", "C"]', ('["A", "C"]',)),
    ],
)
def test_golds_are_read_as_the_grader_reads_them(answer: Any, golds: tuple[str, ...]):
    assert problem_of(1, Row("Add.", answer)).golds == golds


@pytest.mark.parametrize(
    ("choices", "answer", "letter"),
    [
        (["4", "6", "7"], "C", "C"),
        (["4", "6", "7"], " 7 ", "C"),
        (["4", "6", "7"], r"So it is \boxed{B}", "B"),
        ([4, 6.0, 7.5], 7.5, "C"),
        ([4, 6, 7], 6.0, "B"),
        (("Yes", "No"), "No", "B"),
        (["x", "y"], "solved: y\n#### y", "B"),
    ],
)
def test_choices_are_in_the_prompt_and_the_gold_is_a_letter(choices: Any, answer: Any, letter: str):
    problem = problem_of(1, Row("Which? ", answer, choices))
    listed = "\n".join(f"({mark}) {text}" for mark, text in zip("ABC", choices, strict=False))
    assert problem.text == f"Which?\n\n{listed}\n\n{REQUEST}"
    assert problem.golds == (letter,)
    for response in (letter, f"({letter})", rf"\text{{{letter}}}"):
        assert grade(f"\\boxed{{{response}}}", letter).reward == 1


UNASKABLE: tuple[tuple[Row, str], ...] = (
    (Row(7), "neither text nor chat"),
    (Row([]), "end with a user turn"),
    (Row("  "), "end with a user turn"),
    (Row([SYSTEM]), "end with a user turn"),
    (Row([{"role": "user", "content": None}]), "neither text nor chat"),
    (Row([{"text": "x"}]), "neither text nor chat"),
    (Row(["Add."]), "neither text nor chat"),
    (Row([{**USER, "tool_calls": [1]}]), "has tool_calls"),
    (Row([{"role": "user", "content": [{"type": "audio", "audio": "x"}]}]), "type audio"),
    (Row([{"role": "user", "content": ["x"]}]), "type None"),
    (Row("Add.", None), "It has no answer."),
    (Row("Add.", ["3", ""]), "A gold answer is empty"),
    (Row("Add.", [{"x": 1}]), "text or a number, not dict"),
    (Row("Add.", math.inf), "a finite number"),
    (Row("Which?", "A", ["3"]), "list of 2 to 26"),
    (Row("Which?", "A", "a) 1, b) 2"), "list of 2 to 26"),
    (Row("Which?", "A", {"A": "1", "B": "2"}), "list of 2 to 26"),
    (Row("Which?", "A", ["3", {"bytes": ""}]), "list of 2 to 26"),
    (Row("Which?", "A", ["3", " "]), "list of 2 to 26"),
    (Row("Which?", "A", ["3", math.nan]), "list of 2 to 26"),
    (Row("Which?", "C", ["x", "y"]), "neither the letter nor the text"),
    (Row("Which?", 1, ["x", "y"]), "neither the letter nor the text"),
    (Row("Which?", 1, ["1", "2"]), "neither the letter nor the text"),
    (Row("Which?", True, [1, 0]), "neither the letter nor the text"),
    (Row("Which?", ["A", "B"], ["x", "y"]), "neither the letter nor the text"),
    (Row("Blood?", "A", ["0", "A", "B"]), "more than one"),
    (Row("Which?", "x", ["x", "x"]), "more than one"),
    (Row("Half \ud83d a pair", 3), r"prompt contains the lone surrogate \ud83d"),
    (Row("Add.", "\udfff"), "answer contains the lone surrogate"),
    (Row([{**SYSTEM, "content": "\ud800"}, USER], 3), "prompt contains the lone surrogate"),
    (Row("Which?", "x", ["x", "\ud800"]), "prompt contains the lone surrogate"),
)


@pytest.mark.parametrize(("row", "reason"), UNASKABLE, ids=range(len(UNASKABLE)))
def test_a_row_that_cannot_be_asked_and_graded_as_a_whole_is_rejected(row: Row, reason: str):
    with pytest.raises(RowError) as caught:
        problem_of(1, row)
    assert reason in str(caught.value)


def test_an_answer_is_needed_for_grading_alone():
    assert problem_of(1, Row("Add."), "optional").golds == ()
    assert problem_of(1, Row("Add.", None, ["x", "y"]), "optional").golds == ()
    with pytest.raises(RowError):
        problem_of(1, Row("Add.", {}), "optional")


def shown(*parts: Any) -> list[dict[str, Any]]:
    named = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in parts]
    return [{"role": "user", "content": named}]


HERE, PIXELS = {"type": "image"}, stored(picture())
THERE = {"type": "image", "image": PIXELS}


@pytest.mark.parametrize(
    ("asked", "images", "text", "count"),
    [
        ("Add.", PIXELS, "<image>Add.", 1),
        ("Add.", [PIXELS, PIXELS], "<image><image>Add.", 2),
        ("Add <image> and <image>.", [PIXELS, PIXELS], "Add <image> and <image>.", 2),
        (shown("Add ", HERE, "."), [PIXELS], "Add <image>.", 1),
        (shown("Add ", THERE, "."), None, "Add <image>.", 1),
        (shown("Add ", {"type": "image", "image": None, "text": None}), [PIXELS], "Add <image>", 1),
        (shown({"type": "image_url", "image_url": {"url": PIXELS}}), None, "<image>", 1),
        ("Add <image>.", None, "Add <image>.", 0),  # a set of texts, about HTML perhaps
        ("Add.", [], "Add.", 0),
    ],
)
def test_every_image_has_its_place_in_the_text(asked: Any, images: Any, text: str, count: int):
    problem = problem_of(1, Row(asked, 3, images=images))
    assert (problem.text, len(problem.images)) == (text, count)


def test_images_without_a_place_stand_where_trl_puts_them():
    chat = [SYSTEM, USER, {"role": "assistant", "content": "3"}, USER]
    problem = problem_of(1, Row(chat, 3, images=[PIXELS]))
    contents = [turn["content"] for turn in problem.messages]
    assert contents == ["Be kind.", "<image>Add.", "3", "Add."]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Row("<image><image>", 3, images=[PIXELS]), "<image> 2 times, and 1 images"),
        (Row("<image>", 3, images=[PIXELS, PIXELS]), "<image> 1 times, and 2 images"),
        (Row("<image>", 3, images=[]), "<image> 1 times, and 0 images"),
        (Row(shown(HERE), 3), "<image> 1 times, and 0 images"),
        (Row(shown(THERE, "<image>"), 3), "<image> 2 times, and 1 images"),
        (Row(shown(THERE, HERE), 3), "not all in its chat"),
        (Row(shown(THERE), 3, images=[PIXELS]), "not all in its chat"),
        (Row("Add.", 3, images=[PIXELS, PIXELS[:-30]]), "Its image 2 cannot be decoded"),
        (Row("Add.", 3, images=["https://nowhere.invalid/a.png"]), "nothing is fetched"),
        (Row("Add.", 3, images=[None]), "Its image 1 is None"),
        (Row(shown({"type": "image_url", "image_url": {}}), 3), "and 0 images"),
    ],
)
def test_a_row_without_as_many_good_images_as_places_is_rejected(row: Row, reason: str):
    with pytest.raises(RowError) as caught:
        problem_of(1, row)
    assert reason in str(caught.value)
