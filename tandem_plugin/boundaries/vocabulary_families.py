"""Families of vocabularies, and the sample texts that show how a tokenizer encodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from operator import index
from typing import Any, Literal, TypeAlias

from tandem_plugin.errors import TandemError, TokenizerError

NEWLINE = "a\nb"
"""Two lines."""

BLANK_LINES = tuple(
    "\n\n".join(lines)
    for lines in product(("a", "1", "a.", "a:", "a)", "a$$"), ("B", "1", "- b", "  b"))
)
"""Two lines with a blank line between them, with ends and beginnings typical of mathematics."""

PLAIN = "The senior writes 12 words, and the junior reads them."
"""A sentence that every tokenizer of a language model writes and reads."""

MEANINGS = ("Sum", "naïve", "x² + ½", "π ≤ √3", NEWLINE)
"""Texts that mean something else, or nothing, where a normalizer changes them."""

LAYOUT = ("a  b", "  a", "a\tb")
"""Texts that differ by blanks alone where a normalizer changes them."""


def sample_encodings(tokenizer: Any) -> Mapping[str, tuple[int, ...]]:
    """The token ids of each sample text, without special tokens; empty where it encodes no text.

    tokenizer: a Hugging Face tokenizer (slow or fast) or a ``tokenizers.Tokenizer``.
    """
    # A fast tokenizer's own method changes the state of the core that other threads may be using.
    core = getattr(tokenizer, "backend_tokenizer", tokenizer)
    encodings = {}
    try:
        with foreign_code("The sample texts cannot be encoded"):
            for text in (PLAIN, *MEANINGS, *LAYOUT, *BLANK_LINES):
                encoding = core.encode(text, add_special_tokens=False)
                encodings[text] = tuple(map(int, getattr(encoding, "ids", encoding)))
    except TokenizerError:  # resolvers that only need the list of tokens can still be used
        return {}
    return encodings


@contextmanager
def foreign_code(failure: str) -> Iterator[None]:
    """Turn any library error into a :class:`TokenizerError` that begins with ``failure``.

    A panic in the library tokenizers is a BaseException, not an Exception.
    """
    try:
        yield
    except (TandemError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TokenizerError("vocabulary-unreadable", said=failure, error=error) from error


Family: TypeAlias = Literal["byte-level BPE", "SentencePiece", "WordPiece", "plain text"]
"""How pieces are written; tokens listed as bytes are written as in byte-level BPE."""

LEADING_SPACE_MARKERS: dict[Family, str] = {"byte-level BPE": "Ġ", "SentencePiece": "▁"}
"""The families that write the space before a word into its first token, and how."""

_BEGINNINGS: dict[Family, tuple[str, ...]] = {
    "byte-level BPE": ("Ġ", "Ċ"),
    "SentencePiece": ("▁",),
    "WordPiece": ("##",),
}

_BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")


def _byte_alphabet() -> dict[int, str]:
    """The character for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + place) for place, byte in enumerate(unprintable)
    }


_CHARACTER_OF_BYTE = _byte_alphabet()
# Characters that represent no byte become one that latin-1 cannot encode.
_BYTE_OF_CHARACTER = dict.fromkeys(range(256), "\uffff") | {
    ord(character): chr(byte) for byte, character in _CHARACTER_OF_BYTE.items()
}


def byte_level_piece(text: bytes) -> str:
    """A token's bytes as byte-level BPE writes them: ``b" the"`` is ``Ġthe``."""
    return "".join(_CHARACTER_OF_BYTE[byte] for byte in text)


def is_byte_piece(piece: str) -> bool:
    """Whether a piece of a SentencePiece vocabulary stands for one byte: ``<0x0A>``."""
    return _BYTE_PIECE.fullmatch(piece) is not None


def guess_family(pieces: Iterable[str]) -> Family:
    """The family whose marker begins the most pieces; plain text if none does."""
    counts = dict.fromkeys(_BEGINNINGS, 0)
    for piece in pieces:
        for family, beginnings in _BEGINNINGS.items():
            counts[family] += piece.startswith(beginnings)
    best = max(counts, key=lambda family: counts[family])
    return best if counts[best] else "plain text"


def declared_family(tokenizer: Any) -> Family | None:
    """The family given by a tokenizer's own decoder, pre-tokenizer or normalizer; None if none.

    tokenizer: a ``tokenizers.Tokenizer``, or a Hugging Face tokenizer that holds one.
    """
    core = getattr(tokenizer, "backend_tokenizer", tokenizer)
    model = type(getattr(core, "model", None))
    if model.__module__.startswith("tokenizers") and model.__name__ == "WordPiece":
        return "WordPiece"
    for part in ("decoder", "pre_tokenizer", "normalizer"):
        state = _state(getattr(core, part, None))
        if '"ByteLevel"' in state:
            return "byte-level BPE"
        if '"Metaspace"' in state or "▁" in state:
            return "SentencePiece"
        if '"WordPiece"' in state:
            return "WordPiece"
    return None


def special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids of the tokens that a tokenizer marks as special."""
    listed = getattr(tokenizer, "added_tokens_decoder", None)
    if listed is None and hasattr(tokenizer, "get_added_tokens_decoder"):
        listed = tokenizer.get_added_tokens_decoder()
    if not isinstance(listed, Mapping):
        return frozenset(map(index, getattr(tokenizer, "all_special_ids", ())))
    return frozenset(i for i, token in listed.items() if getattr(token, "special", False))


def texts_of(pieces: Sequence[str], family: Family, special: frozenset[int]) -> tuple[bytes, ...]:
    """The bytes that each token represents, in UTF-8 but not always whole characters.

    special: ids of special tokens, whose piece is their text in every family.
    """
    read = {
        "byte-level BPE": _byte_level,
        "SentencePiece": _sentencepiece,
        "WordPiece": _wordpiece,
        "plain text": _plain,
    }[family]
    return tuple(
        _plain(piece) if token_id in special else read(piece)
        for token_id, piece in enumerate(pieces)
    )


def _state(part: Any) -> str:
    """The JSON of a part of a ``tokenizers.Tokenizer``; empty for anything else."""
    if not type(part).__module__.startswith("tokenizers"):
        return ""
    state = part.__getstate__()
    return json.dumps(json.loads(state), ensure_ascii=False) if isinstance(state, bytes) else ""


def _byte_level(piece: str) -> bytes:
    try:
        return piece.translate(_BYTE_OF_CHARACTER).encode("latin-1")
    except UnicodeEncodeError:  # an added token, written as plain text
        return _plain(piece)


def _sentencepiece(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes.fromhex(byte[1]) if byte else _plain(piece.replace("▁", " "))


def _wordpiece(piece: str) -> bytes:
    return _plain(piece.removeprefix("##"))


def _plain(piece: str) -> bytes:
    return piece.encode("utf-8", "surrogatepass")
