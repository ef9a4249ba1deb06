"""What a spelled text is: words, a plain number, a time of day, a numeral with a base, a tree."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from tandem_plugin.grading.reader import Reader
from tandem_plugin.grading.relation_kinds import UnreadableError
from tandem_plugin.grading.tree import Node, num

__all__ = ["UnreadableError", "read", "words_of"]

_NUMBER = re.compile(r"(-?)(?:(\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.(\d+))?|\\frac\{(\d+)\}\{(\d+)\})")
_BASED = re.compile(
    r"([0-9A-F ,{}]{1,200}) ?_ ?\{?(?:\\text ?\{)? ?(\d{1,2}|two|eight|ten|sixteen)\}{0,2}"
)
_BASES = {"two": 2, "eight": 8, "ten": 10, "sixteen": 16}
_TIME = re.compile(
    r"(?:\\text ?\{)? ?(\d{1,2})(?::(\d\d))? ?(?:\\text ?\{)? ?(?:([aApP])\.? ?[mM]\.?)? ?\}{0,2}"
)
_LETTER = re.compile("[A-Za-z]")
_WORD_TEXT = re.compile(r"\\(?:text|mathrm) ?\{([^{}\\]{0,200})\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z' .,-]{0,199}")
_SHORT_WORDS = frozenset(("yes", "no", "odd", "all", "none"))
_SETS = {
    "all real numbers": "reals", "all reals": "reals", "no solution": "empty",
    "no solutions": "empty", "no real solution": "empty", "no real solutions": "empty",
}  # fmt: skip
"""Words for sets."""
_SET_WORDS = re.compile("(?:real|solution)s?[ .}]*$|numbers", re.IGNORECASE)
_BETWEEN_WORDS = re.compile(r", ?(?:and|or) |\\text ?\{ ?,? ?(?:and|or) ?\}| (?:and|or) |[,;]")


@lru_cache(maxsize=4096)
def read(text: str) -> Node:
    """The tree of a spelled text. Raises :class:`UnreadableError` for what it does not know."""
    if (node := _plain_number(text) or _based(text) or _time(text)) is not None:
        return node
    if _SET_WORDS.search(text) and (name := _SETS.get(words_of(text) or "")) is not None:
        return Node(name)
    parts = _BETWEEN_WORDS.split(text)
    if len(parts) > 1 and all(words := [words_of(part.strip()) for part in parts]):
        return Node("list", tuple(Node("words", (one,)) for one in words))
    reader = Reader(text.removeprefix("\\approx "))
    return reader.all_of(reader.listed)


def _plain_number(text: str) -> Node | None:
    """The tree of an integer, a decimal, or a fraction of integers, without the reader."""
    if len(text) > 300 or (match := _NUMBER.fullmatch(text)) is None:
        return None
    sign, whole, decimals, top, bottom = match.groups()
    if top is not None:
        node = Node("div", (num(int(top)), num(int(bottom))))
    else:
        digits = whole.replace(",", "")
        value = Fraction(int(digits + (decimals or "")), 10 ** len(decimals or ""))
        node = num(value, -len(decimals) if decimals and value.denominator != 1 else None)
    return Node("neg", (node,)) if sign else node


def _based(text: str) -> Node | None:
    if (match := _BASED.fullmatch(text)) is None:
        return None
    digits = re.sub(r"[ ,{}]", "", match[1])
    base = _BASES.get(match[2]) or int(match[2])
    if digits and 2 <= base <= 36 and all(int(digit, 36) < base for digit in digits):
        return Node("based", (digits, base))
    if digits[:1].isdigit():
        raise UnreadableError("A numeral with digits that its base does not have.")
    return None


def _time(text: str) -> Node | None:
    match = _TIME.fullmatch(text)
    if match is None or not (match[3] or match[2]):
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if hour > 24 or minute > 59:
        return None
    return Node("time", (hour, minute, f"{match[3].lower()}m" if match[3] else ""))


def words_of(text: str) -> str | None:
    r"""A spelled text as words without regard to case, or None where it is none.

    Words are letters in ``\text``, or bare ones that no reader would take for a product: four in a
    row, with capitals at the beginnings alone.
    """
    if not _LETTER.search(text):
        return None
    plain = _WORD_TEXT.sub(r"\1", text).strip()
    if not _WORDS.fullmatch(plain) or re.search(r",|(?:^| )(?:and|or)(?: |$)", plain):
        return None
    if "\\" not in text:
        names = plain.split()
        if not all(name[1:].islower() or len(name) == 1 for name in names):
            return None
        if max(map(len, names)) < 4 and plain.lower() not in _SHORT_WORDS:
            return None
    return " ".join(re.sub(r"[-.]", " ", plain).casefold().split())
