from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.grading import extract_answer

HOSTILE = {
    "boxes without end": "\\boxed{" * 150_000,
    "bare boxes": "\\boxed1" * 150_000,
    "nested boxes": "\\boxed{" * 50_000 + "7" + "}" * 50_000,
    "open braces": "{" * 999_000 + "\\boxed{3}",
    "backslashes": "\\" * 2_000_000 + "\\boxed{3}",
    "spaces": ("\\boxed" + " " * 100) * 9_000,
    "digits": "9" * 100_000_000,
    "digits in a box": "\\boxed{" + "9" * 100_000_000 + "}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_takes_little_time(text: str):
    began = time.process_time()
    extract_answer(text)
    assert time.process_time() - began < 1.5


def test_only_the_end_of_a_response_is_searched():
    assert extract_answer("\\boxed{5}" + "x" * 999_991).answer == "5"
    assert extract_answer("\\boxed{5}" + "x" * 1_000_000).finding == "no_box"


@given(st.text(alphabet="ab{}\\ 1", max_size=12), st.text(alphabet="ab1 .", max_size=20))
def test_a_balanced_box_is_found_whatever_follows_it(content: str, after: str):
    balanced = content.replace("\\", "").replace("{", "").replace("}", "")
    found = extract_answer(f"so \\boxed{{{balanced}}}{after}")
    assert found.answer == (balanced.strip() or None)


@given(st.text(alphabet="ab{}\\ 1$", max_size=60))
def test_no_text_breaks_the_extraction(text: str):
    found = extract_answer(text.replace("a", "\\boxed").replace("b", "\\fbox{"))
    assert (found.answer is not None) == (found.finding == "box")
