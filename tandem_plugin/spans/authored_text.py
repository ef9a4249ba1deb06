"""The text of a response cut at its handoffs, right also where one character has two authors."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

__all__ = [
    "JUNIOR",
    "OTHER",
    "SENIOR",
    "UNKNOWN",
    "AuthoredText",
    "Piece",
    "authored_text",
    "token_pieces",
]

JUNIOR, SENIOR, OTHER, UNKNOWN = 0, 1, 2, 3
"""Who wrote a token; OTHER for what neither model wrote, such as the output of a tool; UNKNOWN
where two calls could have written it with different authors."""


class Piece(NamedTuple):
    """Text that spans ``first`` to ``last`` wrote: one character where they are not the same."""

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AuthoredText:
    """A response's spans, and its text in pieces that each belong to one of them or to several."""

    spans: list[tuple[int, int]]
    """(author, tokens) of each span, in order."""
    pieces: list[Piece]
    """In order: what a span wrote alone, and behind it the character that it began, if any."""

    @property
    def text(self) -> str:
        """The whole response."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def span_texts(self) -> list[str]:
        """The text of each span; a character of several is the text of the one that began it."""
        texts = [""] * len(self.spans)
        for piece in self.pieces:
            texts[piece.first] += piece.text
        return texts


def authored_text(
    token_ids: Sequence[int],
    authors: Iterable[int],
    token_bytes: Callable[[Sequence[int]], bytes],
) -> AuthoredText:
    """Decode a response span by span.

    authors: who wrote each token. token_bytes: the bytes of some tokens together. Bytes that are no
    UTF-8 become U+FFFD, one for each maximal part, as Python decodes them.
    """
    spans = [(author, sum(1 for _ in run)) for author, run in groupby(authors)]
    return AuthoredText(spans, list(_pieces(_bytes_of(spans, token_ids, token_bytes))))


def token_pieces(
    token_ids: Sequence[int], token_bytes: Callable[[Sequence[int]], bytes]
) -> list[Piece]:
    """The same text cut at every token: ``first`` and ``last`` are tokens' positions."""
    return list(_pieces(token_bytes([token_id]) for token_id in token_ids))


def _bytes_of(
    spans: Iterable[tuple[int, int]],
    token_ids: Sequence[int],
    token_bytes: Callable[[Sequence[int]], bytes],
) -> Iterator[bytes]:
    start = 0
    for _, tokens in spans:
        yield token_bytes(token_ids[start : start + tokens])
        start += tokens


def _pieces(written: Iterable[bytes]) -> Iterator[Piece]:
    """The pieces of spans that wrote these bytes. ``pending``: a character's that is not whole."""
    pending, first, last = b"", 0, -1
    for i, span in enumerate(written):
        last = i
        if not span:
            continue
        if pending and not _goes_on(pending, span):
            yield Piece(pending.decode("utf-8", "replace"), first, i - 1)
            pending = b""
        text, read = codecs.utf_8_decode(pending + span, "replace", False)
        if pending and text:
            yield Piece(text[0], first, i)
            text = text[1:]
        if text:
            yield Piece(text, i, i)
        if read or not pending:
            first = i
        pending = (pending + span)[read:]
    if pending:
        yield Piece(pending.decode("utf-8", "replace"), first, last)


def _goes_on(pending: bytes, span: bytes) -> bool:
    """Whether the first byte of ``span`` may follow the bytes of an unfinished character."""
    try:
        codecs.utf_8_decode(pending + span[:1], "strict", False)
    except UnicodeDecodeError:
        return False
    return True
