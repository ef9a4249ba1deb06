"""The authors of a running batch: one schedule state a request, advanced by vector operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.draws import draws
from tandem_plugin.errors import EngineError
from tandem_plugin.rules import Rule

__all__ = ["BatchAuthors", "Passage"]

_last = itemgetter(-1)


@dataclass(slots=True)
class Passage:
    """A request in tandem while it is being written, as the engine itself recorded it."""

    rule: Rule
    seed: int
    output: list[int]
    """The engine's own list of response token ids; it grows as the engine generates."""
    authors: list[bool] = field(default_factory=list)
    """Who wrote each token, as it was decided then; known once the request has left the batch."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The requests of the batch that follow one rule, so that one step advances them all."""

    rule: Rule
    rows: NDArray[np.int64]
    slots: NDArray[np.int64]
    outputs: list[list[int]]
    last_row: int


class BatchAuthors:
    """Who writes the next token of each request in a batch of at most ``size`` rows.

    State is held per slot in arrays ``[size]``; a row is a place in the engine's batch and points
    to a slot, so that moving rows moves no state. Rows without a slot are the senior's.
    """

    def __init__(self, size: int, max_positions: int) -> None:
        self._draws = np.empty((size, max_positions), dtype=np.float64)
        self._written = np.empty((size, max_positions), dtype=np.bool_)
        self._limit = np.zeros(size, dtype=np.int64)
        self._author = np.ones(size, dtype=np.bool_)
        self._run = np.zeros(size, dtype=np.int64)
        self._position = np.zeros(size, dtype=np.int64)
        self._passages: list[Passage | None] = [None] * size
        self._slot_of_row: dict[int, int] = {}
        self._free = list(range(size - 1, -1, -1))
        self._groups: list[_Group] | None = None

    def add(self, row: int, passage: Passage, positions: int) -> None:
        """Begin or resume a request in a row: its state is replayed from the tokens it has.

        positions: how many response positions it can reach; its draws are generated for these.
        """
        self.remove(row)
        slot = self._free.pop()
        self._slot_of_row[row] = slot
        self._passages[slot] = passage
        self._groups = None
        limit = min(positions + 1, self._draws.shape[1])
        self._limit[slot] = limit
        self._draws[slot, :limit] = draws(passage.seed, limit)
        self._rebuild(slot)

    def remove(self, row: int) -> Passage | None:
        """End the request in a row; returns it with its whole record, None for a row without."""
        slot = self._slot_of_row.pop(row, None)
        if slot is None:
            return None
        passage = self._passage(slot)
        self._passages[slot] = None
        self._free.append(slot)
        self._groups = None
        missing = len(passage.output) - int(self._position[slot])
        if missing > 1:
            raise EngineError(
                f"A request in tandem ended with {missing} tokens whose author was never decided."
            )
        passage.authors = self._written[slot, : len(passage.output)].tolist()
        return passage

    def move(self, source: int, target: int) -> None:
        """Move a request to another row; what was there is gone."""
        slot = self._slot_of_row.pop(source, None)
        self._slot_of_row.pop(target, None)
        if slot is not None:
            self._slot_of_row[target] = slot
        self._groups = None

    def swap(self, first: int, second: int) -> None:
        """Exchange two rows."""
        slots = {second: self._slot_of_row.pop(first, None)}
        slots[first] = self._slot_of_row.pop(second, None)
        self._slot_of_row.update({row: slot for row, slot in slots.items() if slot is not None})
        self._groups = None

    def next_authors(self, rows: int) -> NDArray[np.bool_]:
        """Take in the tokens that came since the last call, and say who writes next.

        Returns bool ``[rows]``, true = senior. One vectorised step a schedule in the batch; what
        is done a row at a time is only to read the engine's lists.
        """
        authors = np.ones(rows, dtype=np.bool_)
        if self._groups is None:
            self._groups = self._group()
        for group in self._groups:
            if group.last_row >= rows:
                raise EngineError(
                    f"Row {group.last_row} is in tandem, but the batch has {rows} rows."
                )
            self._take_in_tokens(group)
            authors[group.rows] = self._author[group.slots]
        return authors

    def _group(self) -> list[_Group]:
        rows_of: dict[Rule, list[int]] = {}
        for row, slot in self._slot_of_row.items():
            rows_of.setdefault(self._passage(slot).rule, []).append(row)
        groups = []
        for rule, rows in rows_of.items():
            slots = [self._slot_of_row[row] for row in rows]
            outputs = [self._passage(slot).output for slot in slots]
            groups.append(_Group(rule, np.array(rows), np.array(slots), outputs, max(rows)))
        return groups

    def _take_in_tokens(self, group: _Group) -> None:
        slots, outputs = group.slots, group.outputs
        lengths = np.fromiter(map(len, outputs), np.int64, len(outputs))
        behind = lengths - self._position[slots]
        if (behind == 1).all():  # an ordinary step
            self._advance(group.rule, slots, outputs, lengths)
            return
        for slot in slots[(behind < 0) | (behind > 1)].tolist():
            self._rebuild(slot)
        fresh = np.flatnonzero(behind == 1)
        if fresh.size:
            outputs = [outputs[i] for i in fresh.tolist()]
            self._advance(group.rule, slots[fresh], outputs, lengths[fresh])

    def _advance(
        self,
        rule: Rule,
        slots: NDArray[np.int64],
        outputs: list[list[int]],
        position: NDArray[np.int64],
    ) -> None:
        """One step of a schedule for slots that got one token each, on to ``position``."""
        tokens = np.fromiter(map(_last, outputs), np.int64, len(outputs))
        if int(tokens.min()) < 0:
            raise EngineError(
                "The engine has not yet said which token it sampled last, so the next author "
                "cannot be chosen. Asynchronous scheduling does not go with tandem here."
            )
        if (position >= self._limit[slots]).any():
            raise EngineError("A request in tandem grew longer than its own limit of tokens.")
        author, run = rule.schedule.advance(
            self._author[slots],
            self._run[slots],
            rule.boundaries.contains(tokens),
            self._draws[slots, position],
        )
        self._author[slots], self._run[slots], self._position[slots] = author, run, position
        self._written[slots, position] = author

    def _rebuild(self, slot: int) -> None:
        """Derive a slot's state from the tokens that its request has."""
        passage = self._passage(slot)
        length = len(passage.output)
        if length >= self._limit[slot]:
            raise EngineError("A request in tandem grew longer than its own limit of tokens.")
        cursor = passage.rule.cursor(passage.output, passage.seed)
        self._author[slot], self._run[slot] = cursor.author, cursor.run
        self._position[slot] = length
        self._written[slot, :length] = passage.rule.replay(passage.output, passage.seed).senior
        self._written[slot, length] = cursor.author

    def _passage(self, slot: int) -> Passage:
        passage = self._passages[slot]
        assert passage is not None
        return passage
