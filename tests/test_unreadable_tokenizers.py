"""Files that hold no tokenizer, whatever they hold instead, are refused with a sentence."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refused import refused
from sentencepiece_models import sentencepiece_model

from tandem_plugin import TokenizerError, Vocabulary


def refusal(path: Path) -> str:
    with pytest.raises(TokenizerError) as caught:
        Vocabulary.from_path(path)
    said = str(caught.value)
    assert len(said) < 2_000
    return said


def test_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")

    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    assert "tokenizer.json' cannot be read: Permission denied. Check the path" in refusal(file)


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_deeply_nested_file_is_refused(tmp_path: Path, depth: int, brackets: str) -> None:
    opening, closing = ('{"a":', "}") if brackets == "{}" else ("[", "]")
    file = tmp_path / "tokenizer.json"
    inner = opening * depth + "1" + closing * depth
    file.write_text(inner)
    assert str(file) in refusal(file)
    file.write_text(f'{{"model": {{"type": "BPE", "vocab": {inner}}}}}')
    assert str(file) in refusal(file)


@pytest.mark.parametrize("line", [1, 2])
@pytest.mark.parametrize("digits", [9, 4_000, 5_000])
def test_rank_of_many_digits_is_refused(tmp_path: Path, line: int, digits: int) -> None:
    file = tmp_path / "a.tiktoken"
    ranks = ["YQ== 0", "IGI= 1"]
    ranks[line - 1] = f"YQ== {'9' * digits}"
    file.write_text("\n".join(ranks))
    said = refusal(file)
    assert (
        f"line {line}: the rank has {digits} digits, but ranks are token ids, integers from" in said
    )


def test_rank_may_be_written_with_leading_zeros(tmp_path: Path) -> None:
    file = tmp_path / "a.tiktoken"
    file.write_text(f"YQ== {'0' * 5_000}\nIGI= {'0' * 5_000}1\n")
    assert Vocabulary.from_path(file).texts() == (b"a", b" b")


def test_id_of_many_digits_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "vocab.json"
    for digits in (9, 4_000, 5_000):
        file.write_text(f'{{"a": {"9" * digits}}}')
        assert str(file) in refusal(file)


def test_tokenizer_with_ids_that_python_cannot_print_is_refused() -> None:
    class Huge:
        def get_vocab(self) -> dict[str, int]:
            return {"a": 10**5_000}

    with refused("TP212", lowest="a int", highest="a int"):
        Vocabulary.from_tokenizer(Huge())


@pytest.mark.parametrize("listed", [{"a": 0.5}, {"a": None}, ["a"], None])
def test_tokenizer_that_lists_something_else_is_refused(listed: Any) -> None:
    class Strange:
        def get_vocab(self) -> Any:
            return listed

    with refused("TP204"):
        Vocabulary.from_tokenizer(Strange())


def test_panic_of_the_tokenizers_library_is_refused(tmp_path: Path) -> None:
    """A panic is no Exception of Python's: it would end the command with a traceback."""
    tokenizers = pytest.importorskip("tokenizers")
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    content = json.loads(core.to_str())
    charsmap = base64.b64encode(b"nothing of the kind").decode()
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(content))
    with pytest.raises(BaseException) as panic:  # noqa: PT011  # what the library does
        tokenizers.Tokenizer.from_file(str(file))
    assert not isinstance(panic.value, Exception)
    assert "is not a usable tokenizer.json: " in refusal(file)


@pytest.fixture(scope="module")
def model() -> bytes:
    return sentencepiece_model()


def test_sentencepiece_model_with_pieces_that_are_no_text_is_refused(
    tmp_path: Path, model: bytes
) -> None:
    file = tmp_path / "tokenizer.model"
    letters = b"\n\x01w"  # in the file's protocol buffers: a piece of one byte
    assert model.count(letters) == 1
    file.write_bytes(model.replace(letters, b"\n\x01\xff"))
    assert "is neither a SentencePiece model nor a tiktoken file" in refusal(file)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(seed=st.integers(0, 2**32))
def test_corrupt_sentencepiece_model_is_read_or_refused(
    tmp_path: Path, model: bytes, seed: int
) -> None:
    chance = random.Random(seed)
    content = bytearray(model)
    for _ in range(chance.choice([0, 1, 5, 50])):
        content[chance.randrange(len(content))] = chance.randrange(256)
    file = tmp_path / "tokenizer.model"
    file.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
    try:
        assert len(Vocabulary.from_path(file)) > 0
    except TokenizerError as error:
        assert str(file) in str(error)  # noqa: PT017  # either is right


@pytest.mark.parametrize(
    ("code", "contents"),
    [
        ("TP215", [b"not json", b"[" * 100_000, b"\xff\xfe\x00"]),
        ("TP216", [b"[1, 2]", b'{"a": "b"}', b'{"a": true}', b'{"a": 1.0}']),
        ("TP211", [b"{}"]),
        ("TP204", [b'{"model": {"type": "none"}}']),
        ("TP212", [b'{"a": -1}', b'{"a": 1000000000000}']),
    ],
)
def test_file_that_is_no_tokenizer_is_refused(
    tmp_path: Path, code: str, contents: list[bytes]
) -> None:
    file = tmp_path / "vocab.json"
    for content in contents:
        file.write_bytes(content)
        with refused(code):
            Vocabulary.from_path(file)


def test_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text("{}")
    with refused("TP204"):
        Vocabulary.from_path(tmp_path)
