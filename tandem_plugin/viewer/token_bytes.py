"""The bytes that each token stands for: one character may be written by several tokens."""

from __future__ import annotations

import re

from tandem_plugin.boundaries import Vocabulary

__all__ = ["TokenBytes"]

_SPACE = "▁"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """The letter that byte-level BPE writes for each byte. Source: GPT-2's ``bytes_to_unicode``."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(rest)}


_ALPHABET = _byte_alphabet()


class TokenBytes:
    """Token ids to bytes, by the pieces of a vocabulary.

    A vocabulary whose pieces mark a space with ``Ġ`` is read as byte-level BPE, one that marks it
    with ``▁`` as SentencePiece with its byte fallback; any other piece stands for its own text.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = vocabulary.pieces
        byte_level = sum(piece.startswith("Ġ") for piece in vocabulary.pieces)
        sentence_piece = sum(piece.startswith(_SPACE) for piece in vocabulary.pieces)
        self._byte_level = byte_level > sentence_piece
        self._sentence_piece = not self._byte_level and sentence_piece > 0
        self._known: dict[int, bytes] = {}

    def __call__(self, token_id: int) -> bytes:
        """The bytes of one token; an id that the vocabulary lacks is shown as ``<id>``."""
        if token_id not in self._known:
            self._known[token_id] = self._bytes(token_id)
        return self._known[token_id]

    def _bytes(self, token_id: int) -> bytes:
        piece = self._pieces[token_id] if token_id < len(self._pieces) else ""
        if not piece:
            return f"<{token_id}>".encode()
        if self._byte_level and all(letter in _ALPHABET for letter in piece):
            return bytes(_ALPHABET[letter] for letter in piece)
        if self._sentence_piece:
            byte = _BYTE.fullmatch(piece)
            if byte:
                return bytes([int(byte[1], 16)])
            piece = piece.replace(_SPACE, " ")
        return piece.encode("utf-8", "replace")
