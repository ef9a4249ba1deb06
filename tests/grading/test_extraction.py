from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.grading import extract_answer

HOSTILE = {
    "boxes without end": ("\\boxed{" * 150_000, "truncated_box"),
    "bare boxes": ("\\boxed1" * 150_000, "box"),
    "nested boxes": ("\\boxed{" * 50_000 + "7" + "}" * 50_000, "box"),
    "open braces": ("{" * 999_000 + "\\boxed{3}", "box"),
    "backslashes": ("\\" * 2_000_000 + "\\boxed{3}", "box"),
    "spaces": (("\\boxed" + " " * 100) * 9_000, "truncated_box"),
    "digits": ("9" * 100_000_000, "no_box"),
    "digits in a box": ("\\boxed{" + "9" * 100_000_000 + "}", "no_box"),
}


@pytest.mark.timeout(60)  # less than a second if it is read in linear time, else hours
@pytest.mark.parametrize(("text", "finding"), HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_hangs_on_hostile_text(text: str, finding: str):
    assert extract_answer(text).finding == finding


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
