"""``tandem eval``: what it takes before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tandem_plugin.cli import app


def test_one_name_stands_for_one_model_and_one_benchmark(tmp_path: Path) -> None:
    problems = tmp_path / "sums.jsonl"
    problems.write_text(json.dumps({"problem": "1+1?", "answer": "2"}) + "\n")
    senior = tmp_path / "senior"
    senior.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (senior / name).write_text("{}")
    (senior / "model.safetensors").write_bytes(b"w")
    given = ("--senior", senior, "--benchmark", problems, "--benchmark", problems)
    command = ["eval", "solo", *map(str, given), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "--benchmark uses the name 'sums' twice" in result.stderr
    assert "[option-name-used-twice]" in result.stderr
