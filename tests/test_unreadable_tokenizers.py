"""Files that hold no tokenizer, whatever they hold instead, are refused with a sentence."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from refused import refused

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


@pytest.mark.parametrize(
    ("code", "contents"),
    [
        ("TP215", [b"not json", b"[" * 100_000, b"\xff\xfe\x00", b'{"a": ' + b"9" * 5000]),
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
