"""Files and objects that list a vocabulary in a form of their own: tiktoken and SentencePiece."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Any

from tandem_plugin.errors import TokenizerError

__all__ = ["is_rank_file", "read_rank_file", "read_sentencepiece_file", "tiktoken_vocabulary"]

_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+")


def is_rank_file(content: bytes) -> bool:
    """Whether a file's first line is one of tiktoken's: a token's bytes in base64, and its rank."""
    return _RANK_LINE.fullmatch(content.split(b"\n", 1)[0].rstrip()) is not None


def read_rank_file(content: bytes, source: str) -> dict[str | bytes, int]:
    """The bytes of each token and its id, from a file of tiktoken's (``*.tiktoken``)."""
    ranks: dict[str | bytes, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        if not _RANK_LINE.fullmatch(line.strip()):
            raise TokenizerError(
                f"{source!r}, line {number}: expected a token in base64 and its rank."
            )
        token, rank = line.split()
        try:
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except binascii.Error as error:
            raise TokenizerError(f"{source!r}, line {number}: {error}.") from error
    return ranks


def tiktoken_vocabulary(encoding: Any) -> dict[str | bytes, int]:
    """The bytes of each token of a ``tiktoken.Encoding`` and its id; special tokens as strings."""
    special = {token: encoding.encode_single_token(token) for token in encoding.special_tokens_set}
    ids: dict[str | bytes, int] = dict(special.items())
    taken = set(special.values())
    for token_id in range(encoding.n_vocab):
        if token_id in taken:
            continue
        try:
            ids[encoding.decode_single_token_bytes(token_id)] = token_id
        except KeyError:  # a gap in the ids
            continue
    return ids


def read_sentencepiece_file(file: Path) -> tuple[dict[str | bytes, int], frozenset[int]]:
    """The pieces of a SentencePiece ``tokenizer.model`` with their ids, and the special ids.

    Raises :class:`TokenizerError` where sentencepiece is not installed or the file is none of its.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError as error:
        raise TokenizerError(
            f"Reading {str(file)!r} needs sentencepiece: pip install sentencepiece, or "
            "give a tokenizer.json file."
        ) from error
    processor = SentencePieceProcessor()
    try:
        processor.Load(str(file))
    except Exception as error:
        raise TokenizerError(
            f"{str(file)!r} is neither a SentencePiece model nor a file of tiktoken's: {error}"
        ) from error
    ids = range(processor.GetPieceSize())
    pieces: dict[str | bytes, int] = {processor.IdToPiece(i): i for i in ids}
    special = frozenset(i for i in ids if processor.IsControl(i) or processor.IsUnknown(i))
    return pieces, special
