"""Problems of one set that are also in another, exactly or nearly.

Near duplicates are found exactly, without hashing: an inverted index from every five-word sequence
of the evaluation problems to the problems that contain it, and one pass over the training problems.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem_plugin.lab.data.problem import Problem, bare_text

__all__ = ["Overlap", "find_overlaps", "words_of"]

WORDS = 5
_LEAST_GRAMS = 8
_SIMILARITY = 0.5
_CONTAINMENT = 0.8
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training problem and the evaluation problem that it repeats."""

    train_row: int
    evaluation_row: int
    similarity: float
    """Jaccard similarity of the two sets of word runs; 1.0 for equal texts."""
    containment: float
    """The share of the evaluation problem's word runs that are in the training problem."""

    @property
    def is_exact(self) -> bool:
        return self.similarity == 1.0


def find_overlaps(
    train: Sequence[Problem],
    evaluation: Sequence[Problem],
    on_row: Callable[[], None] = lambda: None,
) -> list[Overlap]:
    """All pairs of equal or nearly equal problems, the most similar first.

    Texts are compared as sequences of lower-case words and numbers, without instructions. A pair is
    equal if the sequences are. It is nearly equal if the Jaccard similarity of their five-word
    sequences is at least 0.5, or if at least 0.8 of the evaluation problem's five-word sequences
    (eight or more) are in the training problem. on_row: called for every training problem.
    """
    grams = [_grams(words_of(problem)) for problem in evaluation]
    having: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, found in enumerate(grams):
        for gram in found:
            having[gram].append(place)
    overlaps: list[Overlap] = []
    for problem in train:
        on_row()
        own = _grams(words_of(problem))
        shared = Counter(place for gram in own for place in having.get(gram, ()))
        for place, count in shared.items():
            runs = len(grams[place])
            jaccard = count / (len(own) + runs - count)
            contained = count / runs
            if jaccard >= _SIMILARITY or (contained >= _CONTAINMENT and runs >= _LEAST_GRAMS):
                overlaps.append(Overlap(problem.row, evaluation[place].row, jaccard, contained))
    return sorted(overlaps, key=lambda found: (-found.similarity, found.train_row))


def words_of(problem: Problem) -> tuple[str, ...]:
    """The words and numbers of a problem, in lower case, without its instruction."""
    text = unicodedata.normalize("NFKC", bare_text(problem)).casefold()
    return tuple(_WORD.findall(text))


def _grams(words: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """All runs of five words; a shorter text is one run. The beginning and the end are marked."""
    marked = ("<", *words, ">")
    starts = range(max(1, len(marked) - WORDS + 1))
    return frozenset(marked[start : start + WORDS] for start in starts)
