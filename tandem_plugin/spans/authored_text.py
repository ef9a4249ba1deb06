"""The text of a response cut at its handoffs, right also where one character has two authors."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["JUNIOR", "OTHER", "SENIOR", "AuthoredText", "authored_text"]

JUNIOR, SENIOR, OTHER = 0, 1, 2
"""Who wrote a token; OTHER for what neither model wrote, such as the output of a tool."""


@dataclass(frozen=True, slots=True)
class AuthoredText:
    """A response's text and its spans.

    Lengths of text are in UTF-16 code units, as a browser counts them.
    """

    text: str
    spans: list[tuple[int, int, int]]
    """(author, tokens, length of the text that is the span's alone), in order."""
    shared: list[tuple[int, int, int]]
    """(span, later span, length) of characters whose bytes begin in one span and end in a later
    one. They stand behind the text of the first."""


class _Unit(NamedTuple):
    """Text that tokens ``first`` to ``last`` wrote, and cannot be cut between them."""

    text: str
    first: int
    last: int


def authored_text(
    token_ids: Sequence[int], authors: Sequence[int], token_bytes: Callable[[int], bytes]
) -> AuthoredText:
    """Decode a response token by token and cut it at its handoffs.

    Bytes that are no UTF-8 become U+FFFD, one for each maximal part, as Python decodes them.
    """
    span_of_token: list[int] = []
    spans: list[tuple[int, int]] = []
    for author in authors:
        if spans and spans[-1][0] == author:
            spans[-1] = (author, spans[-1][1] + 1)
        else:
            spans.append((author, 1))
        span_of_token.append(len(spans) - 1)
    lengths = [0] * len(spans)
    shared: list[tuple[int, int, int]] = []
    texts: list[str] = []
    for unit in _units(map(token_bytes, token_ids)):
        texts.append(unit.text)
        first, last = span_of_token[unit.first], span_of_token[unit.last]
        if first == last:
            lengths[first] += _utf16_length(unit.text)
        else:
            shared.append((first, last, _utf16_length(unit.text)))
    return AuthoredText(
        "".join(texts),
        [(author, tokens, n) for (author, tokens), n in zip(spans, lengths, strict=True)],
        shared,
    )


def _units(tokens: Iterable[bytes]) -> Iterator[_Unit]:
    pending, start, last = b"", 0, -1
    for i, token in enumerate(tokens):
        last = i
        if not token:
            continue
        if pending and not _goes_on(pending, token):
            yield _Unit(pending.decode("utf-8", "replace"), start, i - 1)
            pending = b""
        text, read = codecs.utf_8_decode(pending + token, "replace", False)
        if pending and text:
            yield _Unit(text[0], start, i)
            text = text[1:]
        if text:
            yield _Unit(text, i, i)
        if read or not pending:
            start = i
        pending = (pending + token)[read:]
    if pending:
        yield _Unit(pending.decode("utf-8", "replace"), start, last)


def _goes_on(pending: bytes, token: bytes) -> bool:
    """Whether the first byte of ``token`` may follow the bytes of an unfinished character."""
    try:
        codecs.utf_8_decode(pending + token[:1], "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def _utf16_length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
