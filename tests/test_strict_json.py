from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem_plugin.files.strict_json import MAX_DEPTH, is_number, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_json_is_read_as_everybody_reads_it(value: Any):
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) is not ...


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "c": 2, "a": 3}}]'])
def test_a_field_that_is_said_twice_is_refused(text: str):
    with pytest.raises(ValueError, match="the field 'a' twice"):
        parse_json(text)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 5_000, 200_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deep_is_refused(depth: int, begin: str, end: str):
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        parse_json(begin * depth + "1" + end * depth)


def test_many_brackets_side_by_side_are_not_deep():
    value = {"text": "[{" * 1000, "lists": [[1], {"a": 2}] * 500}
    assert parse_json(json.dumps(value)) == value
    deepest = "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH
    assert json.dumps(parse_json(deepest)) == deepest


@pytest.mark.parametrize("text", [b"\xff", b"\xef\xbb\xbf{}", b"", b"9" * 5000, b'"\xed\xa0\x80"'])
def test_what_is_no_json_is_refused(text: bytes):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (-1.5, True), (10**308, True), (10**309, False), (-(10**4000), False),
     (float("nan"), False), (float("inf"), False), (True, False), ("1", False), (None, False)],
)  # fmt: skip
def test_a_number_is_what_a_float_can_hold(value: object, expected: bool):
    assert is_number(value) is expected
    if expected:
        float(value)  # type: ignore[arg-type]
