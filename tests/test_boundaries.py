from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from refused import refused

from tandem_plugin import (
    ConfigError,
    TokenizerError,
    Vocabulary,
    resolve_boundaries,
    resolvers,
)
from tandem_plugin.boundaries.vocabulary import MAX_TOKEN_ID

RealTokenizer = Callable[[str], Path]


@pytest.mark.parametrize(
    ("file", "resolver", "boundaries", "size"),
    [
        ("qwen/vocab.json", "word", 53_021, 151_643),
        ("gpt2/encoder.json", "word", 33_135, 50_257),
        ("t5/tokenizer.json", "word", 21_987, 32_100),
        ("qwen/vocab.json", "step", 565, 151_643),
        ("qwen/vocab.json", "every", 151_643, 151_643),
    ],
)
def test_real_vocabulary_has_its_known_number_of_boundaries(
    real_tokenizer: RealTokenizer, file: str, resolver: str, boundaries: int, size: int
):
    vocabulary = Vocabulary.from_path(real_tokenizer(file))
    assert len(vocabulary) == size
    assert resolve_boundaries(resolver, vocabulary).count == boundaries


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


@pytest.mark.parametrize("pieces", [("a", "b"), ("aĠ", "b▁"), (" a", " b")])
def test_vocabulary_without_a_leading_space_marker_is_refused(pieces: tuple[str, ...]):
    with pytest.raises(TokenizerError) as caught:
        resolve_boundaries("word", Vocabulary(pieces, "made up"))
    assert "'made up' has no token with a leading-space marker ('Ġ'" in str(caught.value)
    assert "boundaries=every" in str(caught.value)
    assert "schedule=token" in str(caught.value)


def test_steps_contain_a_blank_line(byte_level: Vocabulary):
    assert resolve_boundaries("step", byte_level).table.nonzero()[0].tolist() == [4]


def test_vocabulary_without_a_blank_line_has_no_steps():
    with refused("TP206"):
        resolve_boundaries("step", Vocabulary(("a", "Ċ"), "made up"))


def test_every_token_is_a_boundary_of_every(byte_level: Vocabulary):
    assert resolve_boundaries("every", byte_level).count == len(byte_level)


def test_unknown_resolver_is_refused_with_the_known_ones(byte_level: Vocabulary):
    with pytest.raises(ConfigError) as caught:
        resolve_boundaries("sentense", byte_level)
    assert "boundaries='sentense' does not exist" in str(caught.value)
    assert all(name in str(caught.value) for name in resolvers())


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


def test_file_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "vocab.json").write_bytes(b"\xff\xfe\x00")
    with refused("TP215"):
        Vocabulary.from_path(tmp_path / "vocab.json")


def test_tokenizer_that_lists_no_vocabulary_is_refused():
    with refused("TP204"):
        Vocabulary.from_tokenizer(object())


def test_folder_without_a_tokenizer_is_refused(tmp_path: Path):
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps({}))
    with refused("TP204"):
        Vocabulary.from_path(tmp_path)
