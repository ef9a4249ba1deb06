from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin import (
    TokenizerError,
    Vocabulary,
    resolve_boundaries,
)
from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID

RealTokenizer = Callable[[str], Path]


def test_special_tokens_leave_the_digest_of_qwens_words_alone(real_tokenizer: RealTokenizer):
    """The folder has added tokens past the vocabulary that vocab.json alone lacks."""
    pytest.importorskip("transformers")
    folder = Vocabulary.from_path(real_tokenizer("qwen"))
    file = Vocabulary.from_path(real_tokenizer("qwen/vocab.json"))
    assert len(folder) > len(file)
    assert resolve_boundaries("word", folder).digest == resolve_boundaries("word", file).digest


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (("a", "Ġa", "bĠ", "Ġ", "ĠĠ", ""), [1, 3, 4]),
        (("a", "▁a", "b▁", "▁", "<s>"), [1, 3]),
        (("▁", "Ġa", "Ġb", "c"), [1, 2]),
    ],
)
def test_words_begin_with_the_vocabularys_leading_space_marker(
    pieces: tuple[str, ...], words: list[int]
):
    table = resolve_boundaries("word", Vocabulary(pieces, "made up")).table
    assert table.nonzero()[0].tolist() == words


def test_tokenizer_object_and_its_file_give_one_vocabulary(tmp_path: Path):
    tokenizers = pytest.importorskip("tokenizers")
    ids = {"a": 0, "Ġa": 1, "b": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    pieces = ("a", "Ġa", "", "b")
    assert Vocabulary.from_tokenizer(tokenizer).pieces == pieces
    assert Vocabulary.from_path(tmp_path / "tokenizer.json").pieces == pieces


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not json", "line 1 column 1 (char 0)). Give a tokenizer folder, a tokenizer.json, or"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "neither a tokenizer.json nor a JSON object of token to id"),
        ('{"a": "b"}', "neither a tokenizer.json nor a JSON object of token to id"),
        ('{"a": true}', "neither a tokenizer.json nor a JSON object of token to id"),
        ('{"a": 1.0}', "neither a tokenizer.json nor a JSON object of token to id"),
        ("{}", "has an empty vocabulary"),
        ('{"model": {"type": "none"}}', "is no usable tokenizer.json"),
        ('{"a": -1}', f"token ids from -1 to -1: ids are integers from 0 to {MAX_TOKEN_ID}"),
        ('{"a": 1000000000000}', "ids are integers from 0 to"),
    ],
)
def test_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str, said: str):
    file = tmp_path / "vocab.json"
    file.write_text(content)
    with pytest.raises(TokenizerError) as caught:
        Vocabulary.from_path(file)
    assert said in str(caught.value)


def test_tokenizer_that_lists_no_vocabulary_is_refused():
    with refused("TP204"):
        Vocabulary.from_tokenizer(object())


def test_folder_without_a_tokenizer_is_refused(tmp_path: Path):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps({}))
    with refused("TP204"):
        Vocabulary.from_path(tmp_path)
