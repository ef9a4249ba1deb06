"""What each author's span of a response says: its text, and the response in two colours."""

from tandem_plugin.spans.authored_text import (
    JUNIOR,
    OTHER,
    SENIOR,
    UNKNOWN,
    AuthoredText,
    Piece,
    authored_text,
    token_pieces,
)
from tandem_plugin.spans.coloured import coloured
from tandem_plugin.spans.token_bytes import TokenBytes

__all__ = [
    "JUNIOR",
    "OTHER",
    "SENIOR",
    "UNKNOWN",
    "AuthoredText",
    "Piece",
    "TokenBytes",
    "authored_text",
    "coloured",
    "token_pieces",
]
