"""The errors that users see: one type per boundary, each a sentence with what to do.

Every error of this package has a code of two or more words in ``refusals.json``, which holds its
sentence and its remedy: ``raise ConfigError("settings-not-mapping", settings=value)``. In them
``{name}``, ``{name!r}`` and ``{name:.2f}`` are Python's; ``{name!q}`` is an external value, quoted
and cut (:func:`shown`).

A code names what is wrong, keeps its meaning and is not used again for a different error.
``docs/troubleshooting.md`` is generated from the file.
"""

from __future__ import annotations

import functools
import json
import numbers
import re
import string
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Any, TypeVar

_Error = TypeVar("_Error", bound="TandemError")


class TandemError(Exception):
    """An operation that tandem rejects: a code, the values of this run, and a sentence with both.

    Raised with a code of the table and the fields of its sentences, or, by a plugin, with its own
    sentence and no code. It can be pickled and sent between processes.
    """

    def __init__(self, code: str = "", /, **fields: object) -> None:
        self.code: str | None = None
        """The error's code, as on the troubleshooting page; None for a plugin's own error."""
        self.fields: dict[str, object] = {}
        """The values in the sentences: strings, numbers, bools and None."""
        text = code
        if fields and not is_code(code):
            raise TypeError(f"{code!r} is no code of refusals.json, so it takes no fields.")
        if is_code(code):
            text = printable(f"{_rendered(code, fields)} [{code}]")
            self.code, self.fields = code, {name: _plain(value) for name, value in fields.items()}
        super().__init__(text)

    @classmethod
    def misspelt(
        cls: type[_Error], code: str, name: object, valid: Iterable[str], /, **fields: object
    ) -> _Error:
        """The error for a name that nobody reads: it suggests the valid one most like it.

        fields: of the code's sentences, which also contain ``{meant}``.
        """
        return cls(code, meant=did_you_mean(name, valid), **fields)

    @classmethod
    def restored(
        cls: type[_Error], text: str, code: str | None, fields: Mapping[str, object]
    ) -> _Error:
        """Recreate an error from a different process, from its ``str``, its code and its fields."""
        error = cls(text)
        error.code, error.fields = code, dict(fields)
        return error

    def recast(self, kind: type[_Error]) -> _Error:
        """The same error as a different type."""
        return kind.restored(str(self), self.code, self.fields)

    def advised(self: _Error, advice: str) -> _Error:
        """The same error with one more sentence of advice."""
        text = f"{self.message} {advice}".strip()
        return self.restored(f"{text} [{self.code}]" if self.code else text, self.code, self.fields)

    @property
    def message(self) -> str:
        """What happened and what to do, without the code."""
        return str(self).removesuffix(f" [{self.code}]")

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = {
            key: value for key, value in vars(self).items() if key not in ("code", "fields")
        }
        return type(self).restored, (str(self), self.code, self.fields), attributes or None


class ConfigError(TandemError, ValueError):
    """A setting is unknown, of the wrong type, or out of range."""


class TokenizerError(TandemError, ValueError):
    """A tokenizer cannot be read, or has no boundaries that a resolver could find."""


class RequestError(TandemError, ValueError):
    """The tandem parameters of a request cannot be honoured."""


class FingerprintError(RequestError):
    """A request was made for a different schedule, boundary set or version than the engine's."""


class EngineError(TandemError, RuntimeError):
    """The engine cannot run in tandem as configured, or is not running in tandem."""


class AuthorshipError(TandemError, RuntimeError):
    """Authorship is missing, has the wrong length, or disagrees with the tokens it describes."""


class GradingError(TandemError, RuntimeError):
    """Grading is not possible here; a response that cannot be graded is data, not an error."""


class DataError(TandemError, ValueError):
    """A problem set, or a row of it, cannot be used."""


class EvaluationError(TandemError, ValueError):
    """An evaluation cannot be run, or its results cannot be read or compared."""


class OutputError(TandemError, ValueError):
    """A file cannot be written, or would overwrite an input."""


@functools.cache
def refusal_groups() -> list[dict[str, Any]]:
    """The areas in order: a title, a guide as Markdown, and the errors by their codes."""
    text = Path(__file__).with_name("refusals.json").read_text(encoding="utf-8")
    groups: list[dict[str, Any]] = json.loads(text)
    return groups


def is_code(text: str) -> bool:
    """Whether a text is an error code rather than a sentence."""
    return text in _templates()


@functools.cache
def _templates() -> dict[str, list[str]]:
    """The sentence and the remedy of each code."""
    return {code: texts for group in refusal_groups() for code, texts in group["refusals"].items()}


def validation_reason(message: str) -> str:
    """pydantic's message as a clause: ``Input should be a valid list`` is ``it must be a list``."""
    text = message.removeprefix("Value error, ").partition(", unable to parse")[0]
    for pattern, ours in _REASONS:
        text = re.sub(pattern, ours, text)
    return text


_REASONS = (
    ("^Input should be a valid integer", "it must be an integer"),
    ("^Input should be a valid ", "it must be a "),
    ("^Input should be greater than or equal to ", "it must be at least "),
    ("^Input should be less than or equal to ", "it must be at most "),
    ("^Input should ", "it must "),
)


def did_you_mean(name: object, valid_names: Iterable[str]) -> str:
    """`` Did you mean 'cap'?`` of the valid name that is most like a wrong one; empty if none is.

    Upper and lower case, hyphens and underscores count as the same.
    """
    names = {_spelled(name): name for name in reversed(list(valid_names))}
    near = get_close_matches(_spelled(str(name)), names, n=1)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


def _spelled(name: str) -> str:
    return name.strip().strip("-").casefold().replace("-", "_")


def shown(value: object) -> str:
    """``repr(value)``, truncated to fit in a sentence."""
    try:
        text = repr(value)
    except Exception:  # such as an integer of more digits than Python prints
        return "a huge integer" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Formatter(string.Formatter):
    """Python's own, with ``!q`` for a value from outside: quoted, and cut."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if isinstance(value, TandemError):
            value = value.message
        elif isinstance(value, PurePath):
            value = str(value)
        return shown(value) if conversion == "q" else super().convert_field(value, conversion)


def _rendered(code: str, fields: Mapping[str, object]) -> str:
    """The sentence and the remedy of a code."""
    sentence, remedy = (_filled(text, fields).strip() for text in _templates()[code])
    return f"{sentence if sentence.endswith(('.', '?', '!')) else sentence + '.'} {remedy}"


_ENDED = re.compile(r"\w[.?!]$")


def _filled(template: str, fields: Mapping[str, object]) -> str:
    """A template with its values; no full stop follows a value that already ends its sentence.

    Reasons from other libraries sometimes do.
    """
    formatter, text = _Formatter(), ""
    for literal, name, spec, conversion in formatter.parse(template):
        text += literal[1:] if literal.startswith(".") and _ENDED.search(text) else literal
        if name is not None:
            value, _ = formatter.get_field(name, (), fields)
            text += formatter.format_field(formatter.convert_field(value, conversion), spec or "")
    return text


def _plain(value: object) -> object:
    """A field as it travels: itself where every process knows its type, else as a text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value) if int(value).bit_length() <= 1024 else shown(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, TandemError):
        return value.message
    return str(value) if isinstance(value, BaseException | PurePath) else shown(value)


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but for the newline and the tab, marks that reorder what is read, and lone
surrogates, which no encoding can write."""


def printable(text: str) -> str:
    """Text with each control character written out, as ``\\x1b``, so that no terminal obeys it.

    Newlines and tabs stay. Marks that turn the direction of writing are written out as well: they
    make a line read as what it is not; and so are lone surrogates, which cannot be sent.
    """
    return _UNPRINTABLE.sub(lambda match: _written_out(ord(match[0])), text)


def _written_out(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
