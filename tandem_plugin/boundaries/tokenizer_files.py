"""Tokenizers that transformers does not list as the model sees them, or does not read at all."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from operator import index
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries.vocabulary_families import Family, declared_family, foreign_code
from tandem_plugin.errors import TokenizerError
from tandem_plugin.files import read_json

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

_AS_IT_IS = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes of transformers, without ``Fast``, that load a ``tokenizer.json`` as it is."""

_CLASSES: Mapping[str, tuple[Family, tuple[str, ...]]] = {
    "GPT2Tokenizer": ("byte-level BPE", ("<|endoftext|>",)),
    "Qwen2Tokenizer": ("byte-level BPE", ("<|endoftext|>",)),
    "GemmaTokenizer": ("SentencePiece", ("<unk>", "<bos>", "<eos>", "<pad>", "<mask>")),
    "LlamaTokenizer": ("SentencePiece", ("<unk>", "<s>", "</s>")),
}
"""Of the most common classes, the family of their parts, and the special tokens that they add.

Folders of other classes are left to transformers.
"""

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


def whole_tokenizer(folder: Path) -> Any:
    """Load a folder's ``tokenizer.json`` as a ``tokenizers.Tokenizer``; None if it is incomplete.

    transformers, which takes seconds to import, reads the same from a folder with a complete one.
    None if it may read more: code, or tokens of other files that ``tokenizer.json`` lacks or has
    with a different id or kind. None as well for an unreadable file: the error is transformers'.
    """
    file = folder / "tokenizer.json"
    if not file.is_file() or (folder / "tekken.json").exists():
        return None
    try:
        from tokenizers import Tokenizer

        with foreign_code(f"{str(file)!r} is not a usable tokenizer.json"):
            core = Tokenizer.from_file(str(file))
        added: Mapping[int, Any] = core.get_added_tokens_decoder()
        added_tokens = {token.content: (i, token.special) for i, token in added.items()}
        for content, token_id, special in _tokens_beside(folder):
            i, kind = added_tokens[content]
            if token_id not in (None, i) or special not in (None, kind):
                return None
        is_whole = _keeps_family(folder, declared_family(core))
    except (ImportError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return core if is_whole else None


def _keeps_family(folder: Path, family: Family | None) -> bool:
    """Whether the class that a folder names leaves the pieces of its file in their family.

    transformers 5 loads a file as it is where its own class is named, and otherwise replaces the
    file's parts by those of the class.
    """
    name = _object(folder / "tokenizer_config.json").get("tokenizer_class")
    if name is None:  # config.json may name another one, by its model
        return not (folder / "config.json").exists()
    name = name.removesuffix("Fast")
    return name in _AS_IT_IS or (name in _CLASSES and _CLASSES[name][0] == family)


def _tokens_beside(folder: Path) -> Iterator[tuple[str, int | None, bool | None]]:
    """Text, id and kind of each token in a folder's other files; None if they omit it.

    Raises ValueError for a folder with its own code, and others for files of unknown form.
    """
    config = _object(folder / "tokenizer_config.json")
    if "auto_map" in config:
        raise ValueError("its tokenizer is code")
    _, defaults = _CLASSES.get(str(config.get("tokenizer_class")).removesuffix("Fast"), ("", ()))
    yield from ((token, None, True) for token in defaults)
    for token_id, token in config.get("added_tokens_decoder", {}).items():
        yield token["content"], int(token_id), bool(token["special"])
    for content, token_id in _object(folder / "added_tokens.json").items():
        yield content, index(token_id), None
    for names in (config, _object(folder / "special_tokens_map.json")):
        for name, value in names.items():
            if name.endswith(("_token", "_tokens")) and not isinstance(value, bool):
                yield from ((token, None, True) for token in _named_tokens(value))


def _named_tokens(value: Any) -> Iterator[str]:
    """The texts of special tokens: one, several, or several by name."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and "content" in value:
        yield value["content"]
    elif value is not None:
        for token in value.values() if isinstance(value, Mapping) else value:
            yield from _named_tokens(token)


def _object(file: Path) -> dict[str, Any]:
    """The JSON object of a file; empty if there is no such file."""
    content: dict[str, Any] = read_json(file) if file.exists() else {}
    return content


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
    """Whether a JSON file has the content of a ``tekken.json``."""
    return isinstance(content.get("config"), dict) and isinstance(content.get("vocab"), list)


def tiktoken_tokens(content: bytes) -> Tokens | None:
    """The tokens of a file of base64 and rank by line, as tiktoken's; None for any other file."""
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
