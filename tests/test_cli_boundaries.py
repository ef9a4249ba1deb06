from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem_plugin import Vocabulary, resolve_boundaries
from tandem_plugin.cli import app


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["boundaries", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_boundaries_are_counted_and_shown(tokenizer_file: Path, byte_level: Vocabulary):
    code, out, _ = run(tokenizer_file)
    assert code == 0
    assert "3 of 8 token ids (37.5%)" in out
    assert "2 'Ġa'" in out
    assert resolve_boundaries("word", byte_level).digest[:32] in out


def test_boundaries_as_json(tokenizer_file: Path, byte_level: Vocabulary):
    code, out, err = run(tokenizer_file, "--json", "--examples", 2)
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "tokenizer": str(tokenizer_file),
        "resolver": "word",
        "vocabulary": 8,
        "boundaries": 3,
        "share": 3 / 8,
        "digest": resolve_boundaries("word", byte_level).digest,
        "examples": [{"id": 2, "piece": "Ġa"}, {"id": 6, "piece": "Ġ"}],
    }


@pytest.mark.parametrize(("resolver", "count"), [("word", 3), ("step", 1), ("every", 8)])
def test_resolver_is_chosen_by_name(tokenizer_file: Path, resolver: str, count: int):
    code, out, _ = run(tokenizer_file, "--resolver", resolver, "--json")
    assert code == 0
    assert json.loads(out)["boundaries"] == count


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing/tokenizer.json", "There is no tokenizer at"),
        ("missing", "There is no tokenizer at"),
        ("broken.json", "is not JSON"),
        ("spaceless.json", "has no token with a leading-space marker"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_tokenizer_that_cannot_be_used_is_an_error(
    tmp_path: Path, name: str, said: str, as_json: bool
):
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "spaceless.json").write_text('{"a": 0}')
    code, out, err = run(tmp_path / name, *["--json"] * as_json)
    assert code == 1
    if as_json:
        assert said in json.loads(out)["error"]
        assert err == ""
    else:
        assert err.startswith("Error: ")
        assert said in err
        assert out == ""


def test_mistyped_path_is_not_looked_up_on_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run("runs/tokenizr")[0] == 1
