"""JSON from other programs: read strictly, and with limited nesting."""

from __future__ import annotations

import json
import sys
from typing import Any, TypeGuard

__all__ = ["MAX_DEPTH", "is_number", "parse_json"]

MAX_DEPTH = 100
"""How deep lists and objects may lie in each other, far above any row's or setting's."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; bytes are read as UTF-8.

    Raises ValueError, with the reason, for invalid JSON; for an object that contains a field twice,
    since readers differ in which one they use; and for values nested deeper than ``MAX_DEPTH``,
    which can be neither printed nor compared.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        value = json.loads(text, object_pairs_hook=_once_each)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number that fits in a float, and not a bool."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    # Python compares integers with floats exactly: one of 400 digits overflows nothing here.
    return abs(value) <= sys.float_info.max


_TOO_DEEP = f"its lists and objects are nested more than {MAX_DEPTH} deep"


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it contains the field {twice[:60]!r} twice")
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for whole in level
            if isinstance(whole, (dict, list))
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)
