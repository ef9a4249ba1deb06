"""Tokenizers that transformers does not list as the model sees them, or does not read at all."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries.vocabulary_families import foreign_code
from tandem_plugin.errors import TokenizerError

Tokens = dict[str | bytes, int]
"""The id of each token, which is its text, its bytes, or its piece in a Hugging Face file."""

READ_ALONE = ("tokenizer.json", "tekken.json", "tokenizer.model", "vocab.json")
"""The files of a folder that can be read without transformers, the most complete first."""

_VOCABULARIES = (
    *READ_ALONE,
    "vocab.*",
    "encoder.json",
    "*.model",
    "*.model.v*",
    "*.spm",
    "*.tiktoken",
    "*.gguf",
    "tokenization_*.py",
)
"""The names of files that hold a vocabulary, or the code that makes one."""

_UNREAD = ("vocabulary-unreadable", "vocabulary-empty")
"""Errors that missing files can cause: a library's own, and an empty vocabulary."""

_RANK = re.compile(rb"([A-Za-z0-9+/]+={0,2}) (\d+)\s*")


@contextmanager
def loading(source: str) -> Iterator[None]:
    """Turn any library error while a tokenizer is loaded into a :class:`TokenizerError`.

    Libraries make an empty tokenizer of a folder without tokenizer files, or name the last file
    that they looked for. source: a folder or a name.
    """
    try:
        with foreign_code(f"No tokenizer could be read at {source!r}"):
            yield
    except TokenizerError as error:
        if error.code not in _UNREAD or not os.path.isdir(source):
            raise
        _check_files(Path(source))
        if reason := _protobuf_error(Path(source)):
            raise TokenizerError(
                "sentencepiece-unreadable", folder=source, reason=reason
            ) from error
        raise


def file_to_read_alone(folder: Path) -> Path | None:
    """The file of a folder that is read without transformers; None if there is none of this kind.

    Raises :class:`TokenizerError` for a folder without any tokenizer files.
    """
    if os.path.isdir(folder):
        _check_files(folder)
    return next((folder / name for name in READ_ALONE if (folder / name).is_file()), None)


def _check_files(folder: Path) -> None:
    """Raise :class:`TokenizerError` for a folder without tokenizer files."""
    if not any(next(folder.glob(name), None) for name in _VOCABULARIES):
        raise TokenizerError("tokenizer-files-missing", folder=folder)


def _protobuf_error(folder: Path) -> str:
    """Why transformers cannot read this folder's ``tokenizer.model``; empty if that is not it."""
    if not (folder / "tokenizer.model").exists() or (folder / "tokenizer.json").exists():
        return ""
    try:
        import sentencepiece.sentencepiece_model_pb2  # noqa: F401
    except Exception as error:
        return " ".join(str(error).split())
    return ""


def checked_token(token: Any) -> str | bytes:
    """A token that a tokenizer lists; raises TypeError for one that is neither text nor bytes."""
    if not isinstance(token, str | bytes):
        raise TypeError(f"a token is of type {type(token).__name__}")
    return token


def tekkenizer(tokenizer: Any) -> Any:
    """The tokenizer of mistral-common that a tokenizer wraps; None if it wraps none.

    tokenizer: transformers' ``MistralCommonBackend`` or vLLM's ``MistralTokenizer``. Their
    ``get_vocab()`` shows bytes that are no whole characters as one and the same character.
    """
    for path in (("tokenizer",), ("tokenizer", "instruct_tokenizer", "tokenizer")):
        inner = reduce(lambda owner, name: getattr(owner, name, None), path, tokenizer)
        if callable(getattr(inner, "id_to_byte_piece", None)):
            return inner
    return None


def tekkenizer_tokens(inner: Any) -> Tokens:
    """The tokens of a ``Tekkenizer`` of mistral-common."""
    specials = sorted(inner.special_ids)
    tokens: Tokens = {inner.id_to_piece(i): i for i in specials}
    ordinary = sorted({*range(inner.n_words)}.difference(specials))
    return tokens | {inner.id_to_byte_piece(i): i for i in ordinary}


def tekken_tokens(content: Mapping[str, Any]) -> Tokens:
    """The tokens of a ``tekken.json``, whose ranks begin after its special tokens.

    Source: ``Tekkenizer`` of mistral-common 1.13. Older files do not name their special tokens.
    """
    config = content["config"]
    count = config["default_num_special_tokens"]
    names = {token["rank"]: token["token_str"] for token in content.get("special_tokens") or ()}
    tokens: Tokens = {names.get(i, f"<SPECIAL_{i}>"): i for i in range(count)}
    size = config["default_vocab_size"]
    for token in content["vocab"][: size - count]:
        tokens[base64.b64decode(token["token_bytes"], validate=True)] = count + token["rank"]
    if len(tokens) != size:
        raise ValueError(f"it has {len(tokens)} different tokens and says that it has {size}")
    return tokens


def is_tekken(content: Mapping[str, Any]) -> bool:
    """Whether the content of a JSON file is that of a ``tekken.json``."""
    return isinstance(content.get("config"), dict) and isinstance(content.get("vocab"), list)


def tiktoken_tokens(content: bytes) -> Tokens | None:
    """The tokens of a file of base64 and rank by line, as tiktoken's; None for another file."""
    tokens: Tokens = {}
    for line in content.splitlines():
        match = _RANK.fullmatch(line)
        if match is None:
            return None
        with suppress(binascii.Error):
            tokens[base64.b64decode(match[1])] = int(match[2])
    return tokens or None


class SentencePieceFile:
    """A SentencePiece model file, with the methods of a tokenizer that a vocabulary needs."""

    def __init__(self, file: Path) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError as error:
            raise TokenizerError(
                "tokenizer-needs-package", path=file, package="sentencepiece"
            ) from error
        self._model = SentencePieceProcessor(model_file=str(file))
        self.name_or_path = str(file)

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of control tokens and of the token for unknown characters."""
        model = self._model
        return [i for i in range(len(model)) if model.is_control(i) or model.is_unknown(i)]

    def get_vocab(self) -> dict[str, int]:
        """The id of each piece."""
        return {self._model.id_to_piece(i): i for i in range(len(self._model))}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids of a text, without special tokens."""
        return list(self._model.encode(text))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of some ids; control tokens have none."""
        return str(self._model.decode(list(ids)))
