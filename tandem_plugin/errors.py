"""The errors a user can meet: one type per boundary, each a sentence that says what to do."""

import re

__all__ = [
    "AuthorshipError",
    "ConfigError",
    "DataError",
    "EngineError",
    "EvaluationError",
    "FingerprintError",
    "GradingError",
    "OutputError",
    "RequestError",
    "TandemError",
    "TokenizerError",
    "printable",
    "shown",
]


class TandemError(Exception):
    """Whatever tandem refuses to do."""


class ConfigError(TandemError, ValueError):
    """A setting is unknown, of the wrong type, or out of range."""


class TokenizerError(TandemError, ValueError):
    """A tokenizer cannot be read, or has nothing that a boundary resolver could find."""


class RequestError(TandemError, ValueError):
    """What one request asks of tandem cannot be honoured."""


class FingerprintError(RequestError):
    """A request was made for another schedule, boundary set or version than the engine's."""


class EngineError(TandemError, RuntimeError):
    """The engine cannot run in tandem as configured, or is not running in tandem."""


class AuthorshipError(TandemError, RuntimeError):
    """Authorship is missing, has the wrong length, or disagrees with the tokens it describes."""


class GradingError(TandemError, RuntimeError):
    """Responses cannot be graded here; a response that cannot be graded is no error but data."""


class DataError(TandemError, ValueError):
    """A problem set, or a row of it, cannot be used."""


class EvaluationError(TandemError, ValueError):
    """An evaluation, or a result of one, cannot be made, read or compared."""


class OutputError(TandemError, ValueError):
    """A file cannot be written, or would be written over one that the command reads."""


def shown(value: object) -> str:
    """``repr(value)``, cut to what fits in a sentence."""
    try:
        text = repr(value)
    except Exception:  # an integer of more digits than Python prints
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""Control characters but for the newline and the tab, and marks that reorder what is read."""


def printable(text: str) -> str:
    """Text with each control character written out, as ``\\x1b``, so that no terminal obeys it.

    Newlines and tabs stay. Marks that turn the direction of writing are written out as well: they
    make a line read as what it is not.
    """
    return _UNPRINTABLE.sub(lambda found: _written_out(ord(found[0])), text)


def _written_out(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
