"""The table of refusals: every code has one place, its fields, and advice."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tandem_plugin.errors import (
    ConfigError,
    FingerprintError,
    RequestError,
    TandemError,
    refusal_groups,
)

ROOT = Path(__file__).parents[1]
SOURCES = [
    file
    for folder in ("tandem_plugin", "adapters")
    for file in sorted((ROOT / folder).rglob("*.py"))
]
GROUPS = refusal_groups()
REFUSALS = {code: texts for group in GROUPS for code, texts in group["refusals"].items()}
ROWS = {"Unsupported", "Row", "cls"}
"""Makers of rows of tables, which give these fields themselves."""

MISSPELT = "misspelt"
"""The method of a class of errors that gives the nearest name itself, as ``meant``."""

ROW_FIELDS = {"key", "value", "setting"}
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
"""Two words or more. A class of errors and a maker of rows take nothing else of this form."""

CODE_WORD = re.compile(r"(?<![\w-])[a-z0-9]+(?:-[a-z0-9]+)+(?![\w-])")


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Where each code stands in the source, what is called with it, and the fields that it gets."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or maker(node) is None:
                continue
            for argument in node.args:
                match argument:
                    case ast.Constant(str() as code) if code in REFUSALS:
                        where = f"{file.relative_to(ROOT)}:{node.lineno} {maker(node)}"
                        yield where, code, set(given(node))


def maker(node: ast.Call) -> str | None:
    """The name of what is called, or of the class of rows whose method is; None for any other."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        makes = function.value.id in ROWS or function.attr == MISSPELT
        return function.value.id if makes else None
    return function.id if isinstance(function, ast.Name) else None


def given(node: ast.Call) -> Iterator[str]:
    if isinstance(node.func, ast.Attribute) and node.func.attr == MISSPELT:
        yield "meant"
    for keyword in node.keywords:
        if maker(node) not in ROWS:
            yield keyword.arg or "**"
        elif isinstance(keyword.value, ast.Dict):
            yield from (key.value for key in keyword.value.keys if isinstance(key, ast.Constant))


def named(template: str) -> set[str]:
    """The fields that a template names."""
    names = (name for _, name, _, _ in string.Formatter().parse(template) if name)
    return {re.split(r"[.\[]", name)[0] for name in names}


def test_every_code_stands_in_one_group_and_is_words() -> None:
    codes = [code for group in GROUPS for code in group["refusals"]]
    assert [code for code in codes if not CODE.fullmatch(code)] == []
    assert len(REFUSALS) == len(codes) > 300


def test_every_code_is_raised_somewhere_and_every_raised_one_is_declared() -> None:
    assert {code for _, code, _ in calls()} == REFUSALS.keys()


def test_every_code_is_in_a_test() -> None:
    folders = (ROOT / name for name in ("tests", "integration_tests", "examples"))
    files = (file for folder in folders for file in sorted(folder.rglob("test_*.py")))
    words = {
        word
        for file in files
        if file != Path(__file__)
        for word in CODE_WORD.findall(file.read_text(encoding="utf-8"))
    }
    assert REFUSALS.keys() - words == set()


def test_fields_of_every_place_are_those_of_its_sentences() -> None:
    wrong = []
    for where, code, fields in calls():
        wanted = named(" ".join(REFUSALS[code]))
        if where.rpartition(" ")[2] in ROWS:
            wanted -= ROW_FIELDS
        if fields != wanted:
            wrong.append(f"{where}: {code} takes {sorted(wanted)}, not {sorted(fields)}")
    assert wrong == []


def test_no_sentence_of_the_package_is_raised_without_a_code() -> None:
    plain = []
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Raise(ast.Call(ast.Name(name), [argument])) if name.endswith("Error"):
                    kind = getattr(sys.modules["tandem_plugin.errors"], name, None)
                    said = isinstance(argument, ast.JoinedStr | ast.Constant | ast.BinOp)
                    text = getattr(argument, "value", "")
                    if kind and said and text not in REFUSALS:
                        plain.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert plain == []


def test_error_says_sentence_remedy_and_code() -> None:
    error = ConfigError("settings-not-mapping", settings=[1, 2])
    said = 'tandem=[1, 2] is not a mapping of settings. Pass, for example, {"schedule": "word"}.'
    assert str(error) == f"{said} [settings-not-mapping]"
    assert error.message == said
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("reason", ["It is torn", "It is torn."])
def test_sentence_ends_once_whether_or_not_its_reason_does(reason: str) -> None:
    error = ConfigError("plan-config-unreadable", given="a", file="b", reason=reason)
    assert f"({reason}). Pass" in str(error)
    torn = TandemError("problem-file-not-parquet", path="a", error=ValueError(reason))
    assert "It is torn. Write" in str(torn)


def test_fields_are_plain_data_whatever_was_given(tmp_path: Path) -> None:
    inner = ConfigError("settings-not-mapping", settings=1)
    fields = {"said": tmp_path, "error": inner}
    assert TandemError("vocabulary-unreadable", **fields).fields == {
        "said": str(tmp_path),
        "error": inner.message,
    }
    error = ConfigError("plugin-name-reserved", what=np.int64(3))
    assert type(error.fields["what"]) is int
    assert ConfigError("plugin-name-reserved", what=np.float32(0.5)).fields == {"what": 0.5}
    assert ConfigError("settings-not-mapping", settings=10**5000).fields == {
        "settings": "a huge integer"
    }
    assert ConfigError("plugin-name-reserved", what=None).fields == {"what": None}
    assert ConfigError("plugin-name-reserved", what=range(3)).fields == {"what": "range(0, 3)"}


def test_value_from_outside_is_cut_to_what_fits() -> None:
    assert "a" * 56 + "..." in str(ConfigError("settings-not-mapping", settings="a" * 1000))
    assert "a huge integer" in str(ConfigError("settings-not-mapping", settings=10**5000))


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("settings-not-mapping", settings={"a": 1}),
        FingerprintError(
            "request-rules-differ", fingerprint="a", expected="b", schedule="word", resolver="word"
        ),
        RequestError("A plugin's own sentence."),
        ConfigError("settings-not-mapping", settings=5).advised("Or do nothing."),
    ],
)
def test_error_travels_whole(error: TandemError) -> None:
    error.__notes__ = ["on the way"]
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert (other.code, other.fields) == (error.code, error.fields)
        assert other.__notes__ == ["on the way"]


def test_sentence_of_a_plugin_has_no_code() -> None:
    error = ConfigError("The moon is full. Wait.")
    assert (error.code, error.fields, str(error)) == (None, {}, "The moon is full. Wait.")
    assert error.message == str(error)
    assert str(TandemError()) == ""


def test_refusal_is_the_same_as_another_error_and_with_more_advice() -> None:
    error = ConfigError("settings-not-mapping", settings=5)
    other = error.recast(RequestError)
    assert type(other) is RequestError
    assert (str(other), other.code, other.fields) == (
        str(error),
        "settings-not-mapping",
        {"settings": 5},
    )
    assert str(error.advised("Or wait.")) == f"{error.message} Or wait. [settings-not-mapping]"
    assert ConfigError("No.").advised("Wait.").message == "No. Wait."
