"""Files and objects that list a vocabulary in a form of their own."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries.vocabulary_families import (
    Family,
    declared_family,
    encoder_of,
    foreign_code,
)
from tandem_plugin.errors import TokenizerError
from tandem_plugin.files.strict_json import parse_json

__all__ = [
    "MAX_TOKEN_ID",
    "VocabularyListing",
    "read_file",
    "tiktoken_listing",
    "tokenizer_listing",
]

MAX_TOKEN_ID = 2**24 - 1
"""The largest token id that a vocabulary may hold, far above any tokenizer's."""

_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+")


@dataclass(frozen=True, slots=True)
class VocabularyListing:
    """The tokens that a tokenizer lists, and what else it says about itself."""

    ids: Mapping[Any, int]
    """Each token, as a string or as bytes, and its id."""
    family: Family | None = None
    special: frozenset[int] = frozenset()
    encode: Callable[[str], Sequence[int]] | None = None
    """The token ids of a text, special tokens left out; None for a mere list."""


def read_file(file: Path) -> VocabularyListing:
    """A ``tokenizer.json``, a JSON object of token to id, a SentencePiece model or a rank file.

    Raises :class:`TokenizerError` for anything else, and for a file that cannot be read.
    """
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise TokenizerError("TP214", file=file, reason=error.strerror or error) from error
    if _RANK_LINE.fullmatch(raw.split(b"\n", 1)[0].rstrip()):
        return VocabularyListing(_read_ranks(raw, str(file)))
    if file.suffix == ".model":
        return _read_sentencepiece(file)
    try:
        content = parse_json(raw)
    except ValueError as error:
        raise TokenizerError("TP215", file=file, error=error) from error
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        from tokenizers import Tokenizer

        with foreign_code(f"{str(file)!r} is not a usable tokenizer.json"):
            return tokenizer_listing(Tokenizer.from_file(str(file)))
    if isinstance(content, dict) and all(type(i) is int for i in content.values()):
        return VocabularyListing(content)
    raise TokenizerError("TP216", file=file)


def tokenizer_listing(tokenizer: Any) -> VocabularyListing:
    """What a Hugging Face tokenizer (slow or fast) or a ``tokenizers.Tokenizer`` lists."""
    return VocabularyListing(
        {token: index(i) for token, i in tokenizer.get_vocab().items()},
        declared_family(tokenizer),
        _special_ids(tokenizer),
        encoder_of(tokenizer),
    )


def tiktoken_listing(encoding: Any) -> VocabularyListing:
    """The bytes of each token of a ``tiktoken.Encoding``; special tokens are strings.

    Where several special tokens share an id (as in ``o200k_harmony``), the first in order of
    spelling stands for it.
    """
    by_id = {
        encoding.encode_single_token(token): token
        for token in sorted(encoding.special_tokens_set, reverse=True)
    }
    ids: dict[str | bytes, int] = {token: token_id for token_id, token in by_id.items()}
    for token_id in range(encoding.n_vocab):
        if token_id in by_id:
            continue
        try:
            ids[encoding.decode_single_token_bytes(token_id)] = token_id
        except KeyError:  # a gap in the ids
            continue
    return VocabularyListing(ids, encode=encoding.encode_ordinary)


def _read_ranks(content: bytes, source: str) -> dict[bytes, int]:
    """The bytes of each token and its id, from a file of tiktoken's (``*.tiktoken``)."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        if not _RANK_LINE.fullmatch(line.strip()):
            raise TokenizerError("TP217", source=source, number=number)
        encoded, rank = line.split()
        if len(rank.lstrip(b"0")) > len(str(MAX_TOKEN_ID)):  # Python reads no number of any length
            raise TokenizerError(
                "TP218", source=source, number=number, digits=len(rank), largest=MAX_TOKEN_ID
            )
        try:
            token = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise TokenizerError("TP219", source=source, number=number, error=error) from error
        if token in ranks:
            raise TokenizerError("TP220", source=source, number=number, token=token)
        ranks[token] = int(rank.lstrip(b"0") or b"0")
    return ranks


def _read_sentencepiece(file: Path) -> VocabularyListing:
    """The pieces of a SentencePiece ``tokenizer.model``.

    Raises :class:`TokenizerError` where sentencepiece is not installed or the file is none of its.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise TokenizerError("TP221", file=file) from error
    processor = SentencePieceProcessor()
    with foreign_code(f"{str(file)!r} is neither a SentencePiece model nor a tiktoken file"):
        processor.Load(str(file))
        ids = range(processor.GetPieceSize())
        return VocabularyListing(
            {processor.IdToPiece(i): i for i in ids},
            "SentencePiece",
            frozenset(i for i in ids if processor.IsControl(i) or processor.IsUnknown(i)),
            processor.EncodeAsIds,
        )


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids of the tokens that a tokenizer marks as special."""
    listed = getattr(tokenizer, "added_tokens_decoder", None)
    if listed is None and hasattr(tokenizer, "get_added_tokens_decoder"):
        listed = tokenizer.get_added_tokens_decoder()
    if not isinstance(listed, Mapping):
        return frozenset()
    return frozenset(i for i, token in listed.items() if getattr(token, "special", False))
