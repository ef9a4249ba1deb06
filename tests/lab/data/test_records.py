"""Files and sets on the Hub: what is read of them, and what they are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from tandem_plugin.lab.data import prepare, read_problems
from tandem_plugin.lab.data.records import is_hub_source


def write(path: Path, *rows: Any) -> Path:
    if path.suffix == ".json":
        path.write_text(json.dumps(list(rows)), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow.parquet import write_table

        write_table(arrow.Table.from_pylist(list(rows)), path)
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".parquet"])
def test_all_formats_give_the_same_problems(tmp_path: Path, ending: str):
    rows = [{"problem": "Add 1 and 2.", "answer": "3"}, {"problem": "Add 2 and 2.", "answer": "4"}]
    problems = read_problems(write(tmp_path / f"set{ending}", *rows))
    assert problems.name == "set"
    assert [(one.row, one.text, one.golds) for one in problems.problems] == [
        (1, "Add 1 and 2.", ("3",)),
        (2, "Add 2 and 2.", ("4",)),
    ]


def test_a_torn_line_is_a_bad_row(tmp_path: Path):
    file = tmp_path / "set.jsonl"
    file.write_text('\n{"problem": "Add.", "answer": 3}\n{"problem": "Ad', encoding="utf-8")
    problems = read_problems(file, bad_rows="skip")
    assert [bad.row for bad in problems.bad_rows] == [3]
    assert problems.problems[0].row == 2


@pytest.mark.parametrize(
    ("ending", "encoding", "advised"),
    [
        ("jsonl", "utf-16", "UTF-16"),
        ("json", "utf-16", "UTF-16"),
        ("jsonl", "latin-1", "WINDOWS-1252"),
        ("json", "latin-1", "WINDOWS-1252"),
    ],
)
def test_a_text_in_another_encoding_is_no_bad_row(
    tmp_path: Path, ending: str, encoding: str, advised: str
):
    """Skipping its rows would lose those with letters beyond ASCII, or all."""
    file = tmp_path / f"set.{ending}"
    row = json.dumps({"problem": "Wie groß ist 3?", "answer": 3}, ensure_ascii=False)
    file.write_text(f"[{row}]" if ending == "json" else row, encoding=encoding)
    with refused("problem-text-not-utf8", encoding=advised):
        read_problems(file)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("nothing.jsonl", None, "problem-file-missing"),
        (".", None, "problem-file-is-folder"),
        ("set.csv", "a,b", "problem-file-extension"),
        ("set.json", "{", "problem-file-not-json"),
        ("set.json", '{"a": 1}', "problem-file-not-list"),
        ("set.jsonl", "", "problem-set-empty"),
        ("set.json", '{"a": [1], "b": [2]}', "problem-file-not-list"),
        ("set.parquet", "no", "problem-file-not-parquet"),
    ],
)
def test_files_that_are_no_problem_set(tmp_path: Path, name: str, content: str | None, code: str):
    file = tmp_path / name
    if content is not None:
        file.write_text(content, encoding="utf-8")
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    with refused(code):
        read_problems(file)


def test_hub_names_are_told_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("owner/name", "owner/name#train", "hf://owner/name", "owner/name:v1.0#test"):
        assert is_hub_source(name)
    assert not is_hub_source("folder/set.jsonl")
    assert not is_hub_source("name")


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refused("hub-needs-datasets"):
        read_problems("hf://owner/name")


def test_parquet_is_read_and_written_with_pyarrow_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "set.parquet"
    file.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with refused("parquet-needs-pyarrow"):
        read_problems(str(file))
    rows = write(tmp_path / "set.jsonl", *({"problem": f"{i}+1?", "answer": "1"} for i in range(4)))
    with refused("verl-parquet-needs-pyarrow"):
        prepare(read_problems(str(rows)), "verl", tmp_path / "out")


@pytest.mark.parametrize("ending", [".jsonl", ".json"])
def test_a_byte_order_mark_is_no_bad_row(tmp_path: Path, ending: str):
    rows = [{"problem": f"{i} + 1?", "answer": i + 1} for i in range(2)]
    text = json.dumps(rows) if ending == ".json" else "\n".join(map(json.dumps, rows))
    file = tmp_path / f"set{ending}"
    file.write_text(text, encoding="utf-8-sig")
    problems = read_problems(file, bad_rows="skip")
    assert (len(problems), problems.bad_rows) == (2, ())
    file = tmp_path / "joined.jsonl"  # as `cat` joins two files
    file.write_bytes(b"\xef\xbb\xbf\n" + b"".join(b"\xef\xbb\xbf" + json.dumps(r).encode() + b"\n"
                                                  for r in rows))  # fmt: skip
    assert [problem.row for problem in read_problems(file).problems] == [2, 3]


def test_an_object_is_no_list_of_problems(tmp_path: Path):
    file = tmp_path / "set.json"
    file.write_text(json.dumps({"version": 1, "rows": [{"problem": "1 + 1?", "answer": 2}]}))
    with refused("problem-file-not-list", kind="dict"):
        read_problems(file)


def test_a_file_name_that_is_no_text_gives_a_name_that_can_be_written(tmp_path: Path):
    file = write(tmp_path / "set\udcff.jsonl", {"problem": "Add.", "answer": 3})
    assert read_problems(file).name == "set?"
