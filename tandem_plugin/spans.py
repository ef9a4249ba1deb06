"""The text of each author's span in a response, cut at handoffs."""

from __future__ import annotations

import codecs
import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.schedules import SoloWordSchedule

JUNIOR, SENIOR, OTHER, UNKNOWN, UNTRAINED = range(5)
"""Who wrote a token; OTHER for text that neither model wrote, such as the output of a tool; UNKNOWN
if two calls could have written it with different authors; UNTRAINED for the senior's where the
schedule only selects which of its tokens are trained on."""


def writers(marks: Sequence[int], settings: Mapping[str, Any]) -> Sequence[int]:
    """Who wrote tokens with this recorded authorship, under these settings of a schedule."""
    if settings.get("schedule") != SoloWordSchedule.name:
        return marks
    return [SENIOR if mark else UNTRAINED for mark in marks]


class Piece(NamedTuple):
    """Text written by spans ``first`` to ``last``; a single character if they differ."""

    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AuthoredText:
    """A response's spans, and its text in pieces that each belong to one or several spans."""

    spans: list[tuple[int, int]]
    """(author, tokens) of each span, in order."""
    pieces: list[Piece]
    """In order: the text that a span wrote alone, then the character that it began, if any."""

    @property
    def text(self) -> str:
        """The whole response."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def span_texts(self) -> list[str]:
        """The text of each span; a character shared by several belongs to the first of them."""
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
    spans = [(author, len(list(run))) for author, run in groupby(authors)]
    return AuthoredText(spans, list(_pieces(_bytes_of(spans, token_ids, token_bytes))))


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


class _Known(dict[int, bytes]):
    """Bytes by token id; an id that the vocabulary lacks is shown as ``<id>``."""

    def __missing__(self, token_id: int) -> bytes:
        return f"<{token_id}>".encode()


class TokenBytes:
    """Token ids to bytes, by a vocabulary; see :meth:`Vocabulary.texts`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._known = _Known((i, text) for i, text in enumerate(vocabulary.texts()) if text)

    def __call__(self, token_ids: Iterable[int]) -> bytes:
        """The bytes of these tokens, one after the other."""
        return b"".join(map(self._known.__getitem__, token_ids))


_STYLES = {
    SENIOR: "border-bottom:2px solid rgb(60 140 230)",
    JUNIOR: "border-bottom:2px dotted rgb(220 140 20)",
    UNTRAINED: "border-bottom:1px solid rgb(60 140 230)",
}
_BOX = "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7"


def coloured(authored: AuthoredText) -> str:
    """HTML without scripts: the escaped text, underlined by author.

    Solid for the senior, thin where that is not trained on, dotted for the junior; a character of
    both has the line of the first.
    """
    pieces = "".join(_underlined(piece, authored) for piece in authored.pieces)
    return f'<div style="{_BOX}">{pieces}</div>'


def _underlined(piece: Piece, authored: AuthoredText) -> str:
    author, _ = authored.spans[piece.first]
    return f'<span style="{_STYLES.get(author, "")}">{html.escape(piece.text)}</span>'
