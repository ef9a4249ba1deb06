"""Which problems are one problem in other spellings, and which are nearly one."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from tandem_plugin.lab.data.instructions import says_how_to_answer
from tandem_plugin.lab.data.problem import INSTRUCTION, Problem

LEAST_LIKENESS = 0.7
"""From which on two problems are nearly one: about one word of twenty may differ."""
_SHINGLE = 3
"""How many words in a row are compared at once."""
_STEPS = "step by step"
"""In a sentence on how to answer, and in no problem."""
_SENTENCE = re.compile(r"(?<=[.?!])\s+|\n")
_WORD = re.compile(r"[^\W_]+")
_LAYOUT = re.compile(
    r"\\(?:(?:left|right|[bB]igg?[lrm]?|middle)(?![A-Za-z])"
    r"|(?:begin|end)\s*\{[a-zA-Z]+\*?\}"
    r"|(?:displaystyle|textstyle|scriptstyle|limits|nolimits|q?quad|enspace|allowbreak)(?![A-Za-z])"
    r"|(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf|tt|normal)|mbox|operatorname\*?"
    r"|rm|bf|it|boldsymbol|[hv]space\*?)(?![A-Za-z])"
    r"|[,;:!><> ()\[\]{}\\])"
)
"""TeX commands for the appearance of a formula."""
_SAME = {
    **dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac"), ""),  # as 1/2 is written
    **dict.fromkeys(("dbinom", "tbinom"), "binom"),
    "leq": "le",
    "leqslant": "le",
    "geq": "ge",
    "geqslant": "ge",
    "neq": "ne",
    "ldots": "dots",
    "cdots": "dots",
    "dotsc": "dots",
    "rightarrow": "to",
    "cdot": "times",
    "varphi": "phi",
    "varepsilon": "epsilon",
    "degree": "circ",
}
"""TeX commands that are one, by their names."""
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_SHORT_FRACTION = re.compile(r"\\([dtc]?frac)\s*(\d)\s*(\d)")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}|\\[,!])(?=\d{3}(?!\d))")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d) | (?!\d)")
_SIGNS = {
    "\u2264": "le",
    "\u2265": "ge",
    "\u2260": "ne",
    "\u2248": "approx",
    "\u00d7": "times",
    "\u00b7": "times",
    "\u00f7": "div",
    "\u00b1": "pm",
    "\u221a": "sqrt",
    "\u221e": "infty",
    "\u00b0": "circ",
    "\u2208": "in",
    "\u222a": "cup",
    "\u2229": "cap",
    "\u2192": "to",
    "\u2220": "angle",
    "\u25b3": "triangle",
    "\u2211": "sum",
    "\u220f": "prod",
    "\u222b": "int",
    "\u2202": "partial",
    "\u2026": "dots",
}
"""Signs that TeX has a command for."""

Words: TypeAlias = tuple[str, ...]


class NearDuplicate(NamedTuple):
    """A held-out problem and the problem of the training set that is likest to it."""

    heldout: int
    """Its row."""
    train: int
    likeness: float
    """The share of their words, three in a row, that both have: from 0 to 1."""


def words_of(problem: Problem) -> Words:
    """The words and numbers of a problem in lower case, without lines that say how to answer."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", _asked(problem, "\n")).casefold()))


def spelling_of(problem: Problem) -> str:
    r"""A problem's letters and digits, equal for all spellings of one problem.

    It has no spaces but between numbers, no signs and no case; no TeX for appearance alone;
    ``\dfrac``, ``\frac`` and a slash are one, as are ``\leq`` and the sign for it, and
    composed and decomposed letters; and no sentence on how to answer.
    """
    return _NOT_BETWEEN_DIGITS.sub("", " ".join(_plain_words(problem)))


def near_duplicates(
    train: Sequence[Problem], heldout: Sequence[Problem]
) -> Iterator[NearDuplicate]:
    """The held-out problems that are nearly one of the training set, in their order.

    Compared are the words that :func:`spelling_of` compares, three in a row; a likeness is the
    share of these that both have, and at least :data:`LEAST_LIKENESS`.
    """
    of_heldout = [set(_shingles(_plain_words(problem))) for problem in heldout]
    index: dict[Words, list[int]] = {}
    for place, shingles in enumerate(of_heldout):
        for shingle in shingles:
            index.setdefault(shingle, []).append(place)
    best: dict[int, tuple[float, int]] = {}
    for problem in train:
        shingles = set(_shingles(_plain_words(problem)))
        shared = Counter(place for shingle in shingles for place in index.get(shingle, ()))
        for place, count in shared.items():
            likeness = count / (len(shingles) + len(of_heldout[place]) - count)
            best[place] = max(best.get(place, (0.0, 0)), (likeness, -problem.row))
    for place, (likeness, row) in sorted(best.items()):
        if likeness >= LEAST_LIKENESS:
            yield NearDuplicate(heldout[place].row, -row, round(likeness, 3))


def _shingles(words: Words) -> Iterable[Words]:
    if len(words) < _SHINGLE:
        return [words]
    return (words[at : at + _SHINGLE] for at in range(len(words) - _SHINGLE + 1))


def _plain_words(problem: Problem) -> Words:
    return _plain(_asked(problem, _SENTENCE))


@lru_cache(2**16)
def _plain(text: str) -> Words:
    text = unicodedata.normalize("NFKC", text)
    text = text if text.isascii() else "".join(map(_named, text))
    text = _SHORT_FRACTION.sub(r"\\\1{\2}{\3}", _THOUSANDS.sub("", text))
    text = _COMMAND.sub(lambda match: f" {_SAME.get(match[1], match[1])} ", _LAYOUT.sub(" ", text))
    return tuple(_WORD.findall(text.casefold()))


def _named(sign: str) -> str:
    r"""A sign as TeX's command for it: ``\alpha`` for the Greek letter; itself if it has none."""
    if name := _SIGNS.get(sign):
        return rf"\{name} "
    if "\u0391" <= sign <= "\u03c9":
        name = unicodedata.name(sign, "").rpartition(" ")[2].lower()
        return rf"\{name} " if name else sign
    return sign


def _asked(problem: Problem, ends: str | re.Pattern[str]) -> str:
    """What the user's turns ask, without the lines or sentences that say how to answer."""
    turns = [turn["content"] for turn in problem.messages if turn["role"] == "user"]
    text = "\n".join(turns or [problem.text]).replace(INSTRUCTION, "")
    parts = text.split(ends) if isinstance(ends, str) else ends.split(text)
    kept = [part for part in parts if not says_how_to_answer(part) and _STEPS not in part.lower()]
    return "\n".join(kept if any(part.strip() for part in kept) else parts).strip()
