r"""Answers of several parts: tuples, intervals, sets, lists, unions, plus-minus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

__all__ = ["MAX_PARTS", "Structure", "equation_sides", "read_structure", "split_top"]

Kind: TypeAlias = Literal["tuple", "interval", "set", "list", "union"]

MAX_PARTS = 64

_TOKEN = re.compile(
    r"\\[{}|]|\\(?:langle|rangle|begin|end|cup|pm)(?![A-Za-z])|\\[A-Za-z]+|\\.|[()\[\]{},;=]"
    r"|(?:(?<=\s)|^)(?:and|or)(?=\s)"
)
_TEXT_AND = re.compile(r"\\text\{\s*,?\s*(?:and|or)\s*\}|,\s+(?:and|or)\s|\s(?:and|or)\s")
_OPEN = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle", "\\begin": "\\end"}
_CLOSE = frozenset(_OPEN.values())
_BRACKETS: dict[tuple[str, str], Kind] = {
    ("(", ")"): "tuple",
    ("\\langle", "\\rangle"): "tuple",
    ("[", ")"): "interval",
    ("(", "]"): "interval",
    ("[", "]"): "interval",
    ("\\{", "\\}"): "set",
}
_COLUMN = re.compile(
    r"\\begin\{[pbvB]?matrix\}((?:[^&\\]|\\(?!begin|end))*?)\\end\{[pbvB]?matrix\}"
)
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])|\+/-|\+-")


@dataclass(frozen=True, slots=True)
class Structure:
    """The parts of an answer."""

    kind: Kind
    parts: tuple[str, ...]
    brackets: tuple[str, str] = ("", "")


@lru_cache(maxsize=4096)
def read_structure(text: str) -> Structure | None:
    """The parts of a canonical text; None where it has no parts of its own."""
    if (union := split_top(text, "\\cup")) is not None:
        return Structure("union", union)
    if (bracketed := _bracketed(text)) is not None:
        return bracketed
    listed = _TEXT_AND.sub(", ", text)
    parts = split_top(listed, ";") or split_top(listed, ",")
    if parts is not None:
        return Structure("list", parts)
    signs = _PLUS_MINUS.findall(text)
    if len(signs) == 1 and "\\mp" not in text:
        plus, minus = (_PLUS_MINUS.sub(f" {sign} ", text).strip() for sign in "+-")
        return Structure("list", (plus.removeprefix("+").strip(), minus))
    return None


def equation_sides(text: str) -> tuple[str, ...]:
    """What stands between the top-level equals signs of a canonical text; itself without one."""
    return split_top(text, "=") or (text,)


def split_top(text: str, separator: str) -> tuple[str, ...] | None:
    """The parts of a text between separators outside of brackets; None without a separator.

    None also where brackets do not match, a part is empty, or there are too many parts.
    """
    if separator not in text:
        return None
    parts: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        found = token.group()
        if found in _OPEN:
            depth += 1
        elif found in _CLOSE:
            depth -= 1
        elif found == separator and depth == 0 and not _is_compared(text, token.start()):
            parts.append(text[start : token.start()].strip())
            start = token.end()
            if len(parts) > MAX_PARTS:
                return None
        if depth < 0:
            return None
    parts.append(text[start:].strip())
    if len(parts) > 1 and not parts[-1] and separator in ",;":
        parts.pop()
    if depth or len(parts) < 2 or not all(parts):
        return None
    return tuple(parts)


def _is_compared(text: str, place: int) -> bool:
    """Whether the equals sign at ``place`` is part of ``<=``, ``>=``, ``!=``, ``:=`` or ``~=``."""
    return text[place] == "=" and text[max(0, place - 1) : place] in tuple("<>!:~")


def _bracketed(text: str) -> Structure | None:
    for opening in ("\\{", "\\langle", "(", "["):
        if text.startswith(opening):
            break
    else:
        return _column(text)
    for closing in ("\\}", "\\rangle", ")", "]"):
        if text.endswith(closing) and not (closing in ")]" and text.endswith("\\" + closing)):
            break
    else:
        return None
    kind = _BRACKETS.get((opening, closing))
    inner = text[len(opening) : -len(closing)].strip()
    if kind is None or not inner or not _is_balanced(inner):
        return None
    parts = split_top(inner, ";") if kind == "set" and ";" in inner else split_top(inner, ",")
    if parts is None:
        is_builder = "|" in inner or ":" in inner
        return Structure("set", (inner,)) if kind == "set" and not is_builder else None
    if kind == "interval" and len(parts) != 2:
        return Structure("tuple", parts, ("[", "]")) if opening == "[" and closing == "]" else None
    brackets = ("(", ")") if opening == "\\langle" else (opening, closing)
    return Structure(kind, parts, brackets)


def _is_balanced(inner: str) -> bool:
    """Whether no bracket within closes one that was opened before."""
    depth = 0
    for token in _TOKEN.finditer(inner):
        found = token.group()
        depth += (found in _OPEN) - (found in _CLOSE)
        if depth < 0:
            return False
    return depth == 0


def _column(text: str) -> Structure | None:
    """A column vector is a tuple."""
    match = _COLUMN.fullmatch(text)
    if match is None:
        return None
    rows = [row.strip() for row in match[1].split("\\\\")]
    if rows and not rows[-1]:
        rows.pop()
    return Structure("tuple", tuple(rows), ("(", ")")) if len(rows) > 1 and all(rows) else None
