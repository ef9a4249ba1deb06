"""A response in two colours, for places that show HTML, such as a notebook."""

from __future__ import annotations

import html

from tandem_plugin.spans.authored_text import (
    JUNIOR,
    OTHER,
    SENIOR,
    UNKNOWN,
    AuthoredText,
    Piece,
)

__all__ = ["coloured"]

_NAMES = {SENIOR: "senior", JUNIOR: "junior", OTHER: "neither", UNKNOWN: "unknown"}
# Half-transparent, so that the text keeps the contrast that the theme around it gives.
_STYLES = {
    SENIOR: "background:rgb(60 140 230/.25);border-bottom:2px solid rgb(60 140 230)",
    JUNIOR: "background:rgb(235 160 40/.25);border-bottom:2px dotted rgb(220 140 20)",
    OTHER: "background:rgb(128 128 128/.2)",
    UNKNOWN: "background:rgb(128 128 128/.2)",
}
_SHARED = "background:rgb(130 90 210/.3);border-bottom:3px double rgb(130 90 210)"
_BOX = "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7"


def coloured(authored: AuthoredText) -> str:
    """HTML without any script: the text with its authors' colours and underlines.

    Solid for the senior, dotted for the junior, double for a character of both; the text is
    escaped. A title says each piece's span, counted from 1, and its author.
    """
    tokens = sum(count for _, count in authored.spans)
    shares = [
        f"{_NAMES[author]} {sum(n for who, n in authored.spans if who == author):,}"
        for author in _NAMES
        if any(who == author for who, _ in authored.spans)
    ]
    facts = f"{_tokens(tokens)}: {', '.join(shares)}" if tokens else "an empty response"
    pieces = "".join(_piece(piece, authored) for piece in authored.pieces)
    return f'<div style="{_BOX}">{pieces}</div><small>{facts}</small>'


def _piece(piece: Piece, authored: AuthoredText) -> str:
    author, tokens = authored.spans[piece.first]
    style, title = _STYLES[author], f"span {piece.first + 1}: {_NAMES[author]}, {_tokens(tokens)}"
    if piece.last != piece.first:
        style, title = _SHARED, f"one character, of spans {piece.first + 1} to {piece.last + 1}"
    return f'<span style="{style}" title="{title}">{html.escape(piece.text)}</span>'


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"
