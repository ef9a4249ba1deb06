"""The table of ``tandem view --table wandb``, and the library that takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.rollouts.rollout import text_digest
from tandem_plugin.lab.viewer.table import COLUMNS


def row(**fields: Any) -> dict[str, Any]:
    return {
        "response_ids": [0, 2, 1, 7],
        "authorship": [1, 1, 0, 0],
        "tandem_seed": 7,
        "tandem_fingerprint": "x",
    } | fields


@pytest.fixture
def written(tmp_path: Path, tokenizer_file: Path) -> Any:
    """Write runs' files and their table; exit code, output, and the table, if there is one."""

    def write(*options: str, **runs: list[Any]) -> tuple[int, str, Any]:
        files = []
        for name, rows in runs.items():
            file = tmp_path / "runs" / name / "1.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = (r if isinstance(r, str) else json.dumps(r) for r in rows)
            file.write_text("".join(line + "\n" for line in lines))
            files.append(str(file.parent))
        table = tmp_path / "table.json"
        command = ["view", *files, "--tokenizer", str(tokenizer_file), "--out", str(table)]
        done = CliRunner().invoke(app, [*command, "--table", "wandb", *options])
        table_now = json.loads(table.read_text()) if table.exists() else None
        return done.exit_code, done.output, table_now

    return write


def test_table_has_each_response_with_what_it_answered(written: Any):
    logprobs = {"senior_logprobs": [-1.0] * 4, "junior_logprobs": [-2.0] * 4}
    prompt = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "Hm."}]
    code, _, table = written(
        a=[
            row(input="P", output=r"a ab.", gts=["4"], score=0.5, step=3, **logprobs),
            row(prompt=prompt, answer=["4", "5"], response="a ab.", pred="4", problem=8, sample=2),
        ],
        b=[{"response_ids": [], "tandem_seed": None, "outcome": "no_answer"}, "torn"],
    )
    assert code == 0
    assert tuple(table["columns"]) == COLUMNS
    first, second, third = (dict(zip(COLUMNS, values, strict=True)) for values in table["data"])
    assert first == {
        "run": "a", "file": "1.jsonl", "line": 1, "step": 3, "problem": 1, "sample": 0,
        "prompt": "P", "response": "a ab.", "gold": "4", "answer": None, "outcome": None,
        "reward": 0.5, "truncated": None, "tokens": 4, "senior_share": 0.5, "spans": 2,
        "surprise": 1.5,
    }  # fmt: skip
    assert second["prompt"] == "user: 2+2?\n\nassistant: Hm."
    assert (second["problem"], second["sample"], second["answer"]) == (8, 2, "4")
    assert second["gold"] == "['4', '5']"
    assert (third["run"], third["outcome"], third["senior_share"]) == ("b", "no_answer", None)


def test_weights_and_biases_takes_the_table(written: Any):
    wandb = pytest.importorskip("wandb", reason="the environment of verl has it")
    rows = [row(problem=i, reward=i % 2, response="a ab.") for i in range(3)]
    _, _, table = written(a=[*rows, {"response_ids": [], "tandem_seed": None}])
    taken = wandb.Table(**table)
    assert taken.columns == list(COLUMNS)
    assert taken.get_column("reward") == [0.0, 1.0, 0.0, None]


def test_grade_beside_the_file_is_in_the_table(written: Any, tmp_path: Path):
    rows = [row(problem=0, sample=0, response="a ab.", reward=0.0)]
    written(a=rows)
    grade = {"problem": 0, "sample": 0, "outcome": "correct", "reward": 1.0, "answer": "4"}
    grades = tmp_path / "runs" / "a" / "1.grades.jsonl"
    grades.write_text(json.dumps({**grade, "response_sha256": text_digest("a ab.")}) + "\n")
    _, _, table = written(a=rows)
    (values,) = table["data"]
    assert (values[COLUMNS.index("answer")], values[COLUMNS.index("reward")]) == ("4", 1.0)


def test_table_is_of_the_runs_own_tokenizer(written: Any):
    code, output, table = written(a=[row(response="else"), row(response="else")])
    assert (code, table) == (1, None)
    assert "view-tokenizer-differs" in output


def test_table_never_replaces_another_file(written: Any, tmp_path: Path):
    assert written(a=[row()])[0] == 0
    assert written(a=[row(), row()])[0] == 0, "its own"
    own = '{"columns": ["mine"]}'
    (tmp_path / "table.json").write_text(own)
    code, output, _ = written(a=[row()])
    assert (code, "page-is-foreign" in output) == (1, True)
    assert (tmp_path / "table.json").read_text() == own


def test_table_is_not_kept_current(written: Any):
    code, output, _ = written("--follow", a=[row()])
    assert (code, "view-table-follows" in output) == (1, True)


def test_table_of_two_runs_is_in_the_folder_that_they_share(tmp_path: Path, tokenizer_file: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jsonl").write_text(json.dumps(row()) + "\n")
    command = ["view", str(tmp_path / "a"), str(tmp_path / "b"), "--tokenizer", str(tokenizer_file)]
    assert CliRunner().invoke(app, [*command, "--table", "wandb"]).exit_code == 0
    assert (tmp_path / "a-and-b.table.json").is_file()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (tmp_path / "a-and-b.html").is_file()
