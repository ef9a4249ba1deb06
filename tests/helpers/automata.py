"""Random finite automata over token classes: as a schedule, and as a plain loop over tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tandem_plugin import BoundarySet
from tandem_plugin.boundaries.marked_parts import marked_parts
from tandem_plugin.boundaries.markers import Markers
from tandem_plugin.rules import Rule
from tandem_plugin.schedules import Lookup

STATES, CLASSES = 9, 6
NAMES = tuple(f"class {number}" for number in range(CLASSES))
KEEP, SENIOR, JUNIOR, DRAW = range(4)


@cache
def transitions(number: int) -> NDArray[np.int64]:
    """The state that follows, and what becomes of the author: ``[states, classes, 2]``."""
    random = np.random.default_rng(number)
    following = random.integers(0, STATES, (STATES, CLASSES))
    authors = random.choice([KEEP, SENIOR, JUNIOR, DRAW], (STATES, CLASSES), p=[0.4, 0.2, 0.2, 0.2])
    return np.stack([following, authors], axis=-1)


@cache
def _lookup(number: int) -> Lookup:
    following, authors = np.moveaxis(transitions(number), -1, 0)
    return Lookup(following * 4 + authors)


@dataclass(frozen=True, slots=True)
class AutomatonSchedule:
    """The automaton of a number. Its run is its state, shifted so that 0 is the state 0."""

    name: ClassVar[str] = "automaton"
    boundaries: ClassVar[str] = "automaton"
    classes: ClassVar[tuple[str, ...]] = NAMES

    number: int = 0
    p: float = 0.5

    def start(self, u: Any) -> Any:
        return u < self.p

    def advance(self, author: Any, run: Any, token_class: Any, u: Any) -> tuple[Any, Any]:
        entry = _lookup(self.number)(run * CLASSES + token_class)
        action = entry & 3
        author = (
            (author & (action == KEEP)) | (action == SENIOR) | ((action == DRAW) & (u < self.p))
        )
        return author, entry >> 2


def classes_of_ids(number: int, size: int) -> BoundarySet:
    """Random classes of ``size`` token ids; ids beyond them are of class 0."""
    table = np.random.default_rng(number).integers(0, CLASSES, size)
    return BoundarySet("automaton", table, NAMES)


def automaton_rule(number: int, size: int, p: float = 0.5) -> Rule:
    schedule = AutomatonSchedule(number, p)
    return Rule(schedule, classes_of_ids(number + 1, size), f"automaton {number} {size} {p}")


CALLS = Markers({"text": {"<{n}>": "called"}, "called": {}})


@dataclass(frozen=True, slots=True)
class CallingSchedule:
    """The junior writes what ``<n>`` calls for."""

    name: ClassVar[str] = "calling"
    boundaries: ClassVar[str] = "calling"
    classes: ClassVar[tuple[str, ...]] = CALLS.classes

    most: int = 5
    calls: int = 30

    def start(self, u: Any) -> Any:
        return u >= 0

    def advance(self, author: Any, run: Any, token_class: Any, u: Any) -> tuple[Any, Any]:
        run = marked_parts(CALLS, "called", self.most, self.calls).advance(run, token_class)
        return run >= 0, run


def calling_rule(size: int) -> Rule:
    """Token ids that open a call, close it, or are a number; every fourth is other text."""
    text = [CALLS.classes.index(name) for name in ("<", "{7}", ">", "a")]
    table = np.resize(np.array(text, dtype=np.int64), size)
    boundaries = BoundarySet("calling", table, CALLS.classes)
    return Rule(CallingSchedule(), boundaries, f"calling {size}")


def authors_by_loop(
    number: int, p: float, table: Sequence[int], tokens: Sequence[int], u: Sequence[float]
) -> list[bool]:
    """Who writes each token and the one after the last, in plain Python.

    table: the class of each token id. u: the draws of the positions, one more than tokens.
    """
    rows = transitions(number).tolist()
    state, author = 0, u[0] < p
    authors = [author]
    for t, token in enumerate(tokens):
        state, action = rows[state][table[token] if token < len(table) else 0]
        if action == DRAW:
            author = u[t + 1] < p
        elif action != KEEP:
            author = action == SENIOR
        authors.append(author)
    return authors
