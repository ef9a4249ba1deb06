"""JSON from other programs, read strictly."""

from __future__ import annotations

import json
import sys
from typing import Any, TypeGuard

__all__ = ["is_number", "parse_json"]


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; bytes are read as UTF-8.

    Raises ValueError, with the reason, for invalid JSON, and for an object that contains a field
    twice, since readers differ in which one they use.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number that fits in a float, and not a bool."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    # Python compares integers with floats exactly: one of 400 digits overflows nothing here.
    return abs(value) <= sys.float_info.max


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it contains the field {twice[:60]!r} twice")
    return found
