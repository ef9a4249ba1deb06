"""The right answers of a problem, in whatever form a data set has them."""

from __future__ import annotations

import math
from typing import Any

from tandem_plugin.grading.extraction import extract_answer

__all__ = ["read_golds"]


def read_golds(value: object) -> tuple[str, ...] | str:
    """Every acceptable answer as text; a sentence that says what is wrong where there is none.

    value: a string, an integer or a float (27.0 is ``27``), or a list, tuple, set or array of
    those. Of a text with a box the box's content is the gold.
    """
    values = _listed(value)
    golds: list[str] = []
    for one in values:
        text = _text(one)
        if text is None:
            return f"A gold answer must be text or a number, not {type(one).__name__}."
        if not text:
            return "A gold answer is empty."
        if text not in golds:
            golds.append(text)
    return tuple(golds) if golds else "There is no gold answer to compare with."


def _listed(value: Any) -> list[Any]:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
    return [value]


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if not isinstance(value, str):
        return None
    found = extract_answer(value)
    return found.answer if found.answer is not None else value.strip()
