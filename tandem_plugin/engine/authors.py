"""The authors of a running batch: one schedule state a request, advanced by vector operations."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.draws import draws
from tandem_plugin.errors import EngineError
from tandem_plugin.rules import Rule

__all__ = ["BatchAuthors", "Passage"]


@dataclass(slots=True)
class Passage:
    """A request in tandem while it is being written, as the engine itself recorded it."""

    rule: Rule
    seed: int
    output: list[int]
    """The engine's own list of response token ids; it grows as the engine generates."""
    authors: list[bool] = field(default_factory=list)
    """Who wrote each token so far, recorded when its successor's author is decided."""


class BatchAuthors:
    """Who writes the next token of each request in a batch of at most ``size`` rows.

    State is held per slot in arrays ``[size]``; a row is a place in the engine's batch and points
    to a slot, so that moving rows moves no state. Rows without a slot are the senior's.
    """

    def __init__(self, size: int, max_positions: int) -> None:
        self._draws = np.empty((size, max_positions), dtype=np.float64)
        self._limit = np.zeros(size, dtype=np.int64)
        self._author = np.ones(size, dtype=np.bool_)
        self._run = np.zeros(size, dtype=np.int64)
        self._position = np.zeros(size, dtype=np.int64)
        self._passages: list[Passage | None] = [None] * size
        self._slot_of_row: dict[int, int] = {}
        self._free = list(range(size - 1, -1, -1))

    def add(self, row: int, passage: Passage, positions: int) -> None:
        """Begin or resume a request in a row: its state is replayed from the tokens it has.

        positions: how many response positions it can reach; its draws are generated for these.
        """
        self.remove(row)
        slot = self._free.pop()
        self._slot_of_row[row] = slot
        self._passages[slot] = passage
        limit = min(positions + 1, self._draws.shape[1])
        self._limit[slot] = limit
        self._draws[slot, :limit] = draws(passage.seed, limit)
        self._rebuild(slot)

    def remove(self, row: int) -> Passage | None:
        """End the request in a row; returns it with its whole record, None for a row without."""
        slot = self._slot_of_row.pop(row, None)
        if slot is None:
            return None
        passage = self._passages[slot]
        assert passage is not None
        self._passages[slot] = None
        self._free.append(slot)
        missing = len(passage.output) - len(passage.authors)
        if missing == 1:
            passage.authors.append(bool(self._author[slot]))
        elif missing > 1:
            raise EngineError(
                f"A request in tandem ended with {missing} tokens whose author was never decided."
            )
        return passage

    def move(self, source: int, target: int) -> None:
        """Move a request to another row; what was there is gone."""
        slot = self._slot_of_row.pop(source, None)
        self._slot_of_row.pop(target, None)
        if slot is not None:
            self._slot_of_row[target] = slot

    def swap(self, first: int, second: int) -> None:
        """Exchange two rows."""
        slots = {second: self._slot_of_row.pop(first, None)}
        slots[first] = self._slot_of_row.pop(second, None)
        self._slot_of_row.update({row: slot for row, slot in slots.items() if slot is not None})

    def next_authors(self, rows: int) -> NDArray[np.bool_]:
        """Take in the tokens that came since the last call, and say who writes next.

        Returns bool ``[rows]``, true = senior. One vectorised step a schedule in the batch.
        """
        authors = np.ones(rows, dtype=np.bool_)
        if not self._slot_of_row:
            return authors
        where = np.fromiter(self._slot_of_row.keys(), np.int64, len(self._slot_of_row))
        slots = np.fromiter(self._slot_of_row.values(), np.int64, len(self._slot_of_row))
        if int(where.max()) >= rows:
            raise EngineError(
                f"Row {int(where.max())} is in tandem, but the batch has {rows} rows."
            )
        self._take_in_tokens(slots)
        authors[where] = self._author[slots]
        return authors

    def _take_in_tokens(self, slots: NDArray[np.int64]) -> None:
        lengths = np.fromiter((len(self._passage(s).output) for s in slots), np.int64, len(slots))
        behind = lengths - self._position[slots]
        for slot in slots[(behind < 0) | (behind > 1)].tolist():
            self._rebuild(slot)
        fresh = slots[behind == 1]
        by_rule: dict[Rule, list[int]] = {}
        for slot in fresh.tolist():
            passage = self._passage(slot)
            passage.authors.append(bool(self._author[slot]))
            by_rule.setdefault(passage.rule, []).append(slot)
        for rule, members in by_rule.items():
            self._advance(rule, np.array(members, dtype=np.int64))

    def _advance(self, rule: Rule, slots: NDArray[np.int64]) -> None:
        tokens = np.fromiter((self._passage(s).output[-1] for s in slots), np.int64, len(slots))
        if int(tokens.min()) < 0:
            raise EngineError(
                "The engine has not yet said which token it sampled last, so the next author "
                "cannot be chosen. Asynchronous scheduling does not go with tandem here."
            )
        position = self._position[slots] + 1
        if (position >= self._limit[slots]).any():
            raise EngineError("A request in tandem grew longer than its own limit of tokens.")
        author, run = rule.schedule.advance(
            self._author[slots],
            self._run[slots],
            rule.boundaries.contains(tokens),
            self._draws[slots, position],
        )
        self._author[slots], self._run[slots], self._position[slots] = author, run, position

    def _rebuild(self, slot: int) -> None:
        passage = self._passage(slot)
        cursor = passage.rule.cursor(passage.output, passage.seed)
        self._author[slot], self._run[slot] = cursor.author, cursor.run
        self._position[slot] = cursor.position
        if len(passage.authors) != len(passage.output):
            passage.authors = list(passage.rule.replay(passage.output, passage.seed))

    def _passage(self, slot: int) -> Passage:
        passage = self._passages[slot]
        assert passage is not None
        return passage
