from __future__ import annotations

import json
from collections.abc import Callable
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


@pytest.mark.parametrize(("number", "shown"), [(0, 0), (1, 1), (100, 3)])
def test_number_of_examples_is_chosen(tokenizer_file: Path, number: int, shown: int):
    assert run(tokenizer_file, "--examples", number)[0] == 0
    code, out, _ = run(tokenizer_file, "--examples", number, "--json")
    assert code == 0
    assert len(json.loads(out)["examples"]) == shown


def test_pieces_that_look_like_markup_or_terminal_codes_are_printed_as_text(tmp_path: Path):
    file = tmp_path / "vocab.json"
    file.write_text(json.dumps({"Ġ[/red]": 0, "Ġ\x1b[2J": 1}))
    code, out, _ = run(file)
    assert code == 0
    assert "[/red]" in out
    assert "\x1b[2J" not in out


def test_real_vocabulary_has_qwens_word_count(real_tokenizer: Callable[[str], Path]):
    code, out, _ = run(real_tokenizer("qwen/vocab.json"))
    assert code == 0
    assert "53,021 of 151,643 token ids (35.0%)" in out


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
    assert run("tokenizr")[0] == 1


def test_unknown_resolver_is_an_error(tokenizer_file: Path):
    code, _, err = run(tokenizer_file, "--resolver", "sentense")
    assert code == 1
    assert "boundaries='sentense' does not exist. Use one of the boundary resolvers: word" in err


def test_tokenizer_that_a_resolver_refuses_is_an_error(tmp_path: Path):
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"a": 0, "Ċ": 1, "Ġa": 2, "ĊĊ": 3}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("Ċ", "Ċ")]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.save(str(tmp_path / "tokenizer.json"))
    code, out, err = run(tmp_path / "tokenizer.json", "--resolver", "step")
    assert (code, out) == (1, "")
    assert err.startswith("Error: The tokenizer '")
    assert "writes blank lines as several tokens" in err
