"""Which problems are one problem in other spellings, and which are nearly one."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from tandem_plugin.grading.spelling import without_typesetting
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
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d) | (?!\d)")

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
    return _plain(_asked(problem, "\n"))


def spelling_of(problem: Problem) -> str:
    """A problem's letters and digits, equal for all spellings of one problem.

    It has no spaces but between numbers, no signs and no case; composed and decomposed letters are
    one; and it has neither what TeX only typesets nor a sentence on how to answer. The pictures of
    a problem are part of it, by their pixels.
    """
    text = _NOT_BETWEEN_DIGITS.sub("", " ".join(_plain_words(problem)))
    return "\n".join([text, *_pictures(problem)])


def near_duplicates(
    train: Sequence[Problem], heldout: Sequence[Problem]
) -> Iterator[NearDuplicate]:
    """The held-out problems that are nearly one of the training set, in their order.

    Compared are the words that :func:`spelling_of` compares, three in a row; a likeness is the
    share of these that both have, and at least :data:`LEAST_LIKENESS`. Problems with other pictures
    are other problems, since the same question is often asked of many.
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
            if _pictures(problem) != _pictures(heldout[place]):
                continue
            likeness = count / (len(shingles) + len(of_heldout[place]) - count)
            best[place] = max(best.get(place, (0.0, 0)), (likeness, -problem.row))
    for place, (likeness, row) in sorted(best.items()):
        if likeness >= LEAST_LIKENESS:
            yield NearDuplicate(heldout[place].row, -row, round(likeness, 3))


def _pictures(problem: Problem) -> list[str]:
    return [picture.digest for picture in problem.images]


def _shingles(words: Words) -> Iterable[Words]:
    if len(words) < _SHINGLE:
        return [words]
    return (words[at : at + _SHINGLE] for at in range(len(words) - _SHINGLE + 1))


def _plain_words(problem: Problem) -> Words:
    return _plain(_asked(problem, _SENTENCE))


@lru_cache(2**16)
def _plain(text: str) -> Words:
    plain = without_typesetting(unicodedata.normalize("NFKC", text))
    return tuple(_WORD.findall(plain.casefold()))


def _asked(problem: Problem, ends: str | re.Pattern[str]) -> str:
    """What the user's turns ask, without the lines or sentences that say how to answer."""
    turns = [turn["content"] for turn in problem.messages if turn["role"] == "user"]
    text = "\n".join(turns or [problem.text]).replace(INSTRUCTION, "")
    parts = text.split(ends) if isinstance(ends, str) else ends.split(text)
    problem_parts = [
        part for part in parts if not says_how_to_answer(part) and _STEPS not in part.lower()
    ]
    return "\n".join(
        problem_parts if any(part.strip() for part in problem_parts) else parts
    ).strip()
