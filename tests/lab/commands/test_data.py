from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    file = tmp_path / "sums.jsonl"
    rows = [
        {"problem": f"What do {i} and {i + 1} and seven more make?", "answer": 2 * i + 8}
        for i in range(10)
    ]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout or result.stderr


def test_prepare_writes_both_splits(problems: Path, tmp_path: Path):
    out = tmp_path / "out"
    code, text = run(
        "data", "prepare", problems, "--to", "openrlhf", "--out", out, "--heldout", 3, "--json"
    )
    assert code == 0
    result = json.loads(text)
    assert result["rows"] == {"train": 7, "heldout": 3}
    assert len(Path(result["files"]["heldout"]).read_text().splitlines()) == 3


def test_prepare_stops_at_a_bad_row_or_lists_it(problems: Path, tmp_path: Path):
    with problems.open("a", encoding="utf-8") as file:
        file.write('\n{"problem": "No answer."}\n')
        file.write('{"problem": "Add.", "answer": 1}\n{"problem": "Add.", "answer": 2}\n')
    arguments = ("data", "prepare", problems, "--to", "openrlhf", "--out", tmp_path / "out")
    code, text = run(*arguments)
    assert code == 1
    assert "row 11: It has no answer" in text
    code, text = run(*arguments, "--bad-rows", "skip")
    assert code == 0
    assert "skipped: 1\n  row 11: It has no answer" in text
    assert "contradictions: 1 with the text of an earlier problem and another answer" in text


def test_errors_are_sentences(tmp_path: Path):
    to = ("--to", "openrlhf", "--out", tmp_path)
    assert "There is no file" in run("data", "prepare", tmp_path / "none.jsonl", *to)[1]
    mistyped = run("data", "prepare", "deepscalr", *to)[1]
    assert "aime24, " in mistyped
    assert "Did you mean 'deepscaler'?" in mistyped
    assert "[problem-source-missing]" in mistyped
    assert "Did you mean 'gsm8k'?" in run("data", "prepare", "GSM8K", *to)[1]
    options = ("--to", "verl", "--out", tmp_path, "--file", "y")
    of_no_set = run("data", "prepare", "x.jsonl", *options)[1]
    assert "--file is only for named sets" in of_no_set
    assert "[file-of-unnamed-set]" in of_no_set
    assert run("data", "prepare", "x.jsonl")[0] == 2


def test_prepare_never_replaces_its_problems(problems: Path, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    source = problems.rename(out / "train.jsonl")
    before = source.read_bytes()
    code, text = run("data", "prepare", source, "--to", "openrlhf", "--out", out)
    assert (code, source.read_bytes()) == (1, before)
    assert "would overwrite the problems" in text
    assert [path.name for path in out.iterdir()] == ["train.jsonl"]


def test_rows_of_standard_input_are_prepared_like_those_of_a_file(tmp_path: Path):
    rows = "".join(
        json.dumps({"problem": f"What is {n} + 1?", "answer": n + 1}) + "\n" for n in range(3)
    )
    (tmp_path / "stdin.jsonl").write_text(rows)
    for source, out in (("-", "piped"), (str(tmp_path / "stdin.jsonl"), "file")):
        options = ["--to", "openrlhf", "--out", str(tmp_path / out)]
        done = CliRunner().invoke(app, ["data", "prepare", source, *options], input=rows)
        assert done.exit_code == 0, done.output
    piped, file = (tmp_path / out / "train.jsonl" for out in ("piped", "file"))
    assert len(piped.read_text().splitlines()) == 3
    assert piped.read_bytes() == file.read_bytes()
