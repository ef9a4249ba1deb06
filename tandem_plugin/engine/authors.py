"""The authors of a running batch: one schedule state a request, advanced by vector operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.draws import draws
from tandem_plugin.errors import AuthorshipError, EngineError
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


@dataclass(slots=True)
class _Group:
    """The requests of the batch that follow one rule, so that one step advances them all."""

    slots: list[int] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    index: NDArray[np.int64] | None = None
    """``slots`` as an array; None after a change."""

    def add(self, slot: int, output: list[int]) -> None:
        self.slots.append(slot)
        self.outputs.append(output)
        self.index = None

    def remove(self, slot: int) -> None:
        place = self.slots.index(slot)
        del self.slots[place], self.outputs[place]
        self.index = None


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
        self._row = np.zeros(size, dtype=np.int64)
        self._groups: dict[Rule, _Group] = {}

    def add(self, row: int, passage: Passage, positions: int) -> None:
        """Begin or resume a request in a row: its state is replayed from the tokens it has.

        positions: how many response positions it can reach; its draws are generated for these.
        """
        self.remove(row)
        slot = self._free.pop()
        self._place(slot, row)
        self._passages[slot] = passage
        self._groups.setdefault(passage.rule, _Group()).add(slot, passage.output)
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
        group = self._groups[passage.rule]
        group.remove(slot)
        if not group.slots:
            del self._groups[passage.rule]
        missing = len(passage.output) - int(self._position[slot])
        if missing > 1:
            raise EngineError(
                f"A request in tandem ended with {missing} tokens whose author was never decided."
            )
        passage.authors = self._written[slot, : len(passage.output)].tolist()
        return passage

    def move(self, source: int, target: int) -> None:
        """Move a request to another row; what was there is gone."""
        self.remove(target)
        slot = self._slot_of_row.pop(source, None)
        if slot is not None:
            self._place(slot, target)

    def swap(self, first: int, second: int) -> None:
        """Exchange two rows."""
        slots = self._slot_of_row.pop(first, None), self._slot_of_row.pop(second, None)
        for slot, row in zip(slots, (second, first), strict=True):
            if slot is not None:
                self._place(slot, row)

    def next_authors(self, rows: int) -> NDArray[np.bool_]:
        """Take in the tokens that came since the last call, and say who writes next.

        Returns bool ``[rows]``, true = senior. One vectorised step a schedule in the batch; what
        is done a row at a time is only to read the engine's lists.
        """
        authors = np.ones(rows, dtype=np.bool_)
        for rule, group in self._groups.items():
            if group.index is None:
                group.index = np.array(group.slots, dtype=np.int64)
            self._take_in_tokens(rule, group.index, group.outputs)
            where = self._row[group.index]
            try:
                authors[where] = self._author[group.index]
            except IndexError as error:
                raise EngineError(
                    f"Row {int(where.max())} is in tandem, but the batch has {rows} rows."
                ) from error
        return authors

    def _place(self, slot: int, row: int) -> None:
        self._slot_of_row[row] = slot
        self._row[slot] = row

    def _take_in_tokens(
        self, rule: Rule, slots: NDArray[np.int64], outputs: list[list[int]]
    ) -> None:
        lengths = np.fromiter(map(len, outputs), np.int64, len(outputs))
        behind = lengths - self._position[slots]
        if (behind == 1).all():  # an ordinary step
            self._advance(rule, slots, outputs, lengths)
            return
        for slot in slots[(behind < 0) | (behind > 1)].tolist():
            self._rebuild(slot)
        fresh = np.flatnonzero(behind == 1)
        if fresh.size:
            outputs = [outputs[i] for i in fresh.tolist()]
            self._advance(rule, slots[fresh], outputs, lengths[fresh])

    def _advance(
        self,
        rule: Rule,
        slots: NDArray[np.int64],
        outputs: list[list[int]],
        position: NDArray[np.int64],
    ) -> None:
        """One step of a schedule for slots that got one token each, on to ``position``."""
        tokens = np.fromiter(map(_last, outputs), np.int64, len(outputs))
        try:
            is_boundary = rule.boundaries.contains(tokens)
        except AuthorshipError as error:  # vLLM's place-holder for a token to come is negative
            raise EngineError(
                "The engine has not yet said which token it sampled last, so the next author "
                "cannot be chosen. Asynchronous scheduling does not go with tandem here."
            ) from error
        if (position >= self._limit[slots]).any():
            raise EngineError("A request in tandem grew longer than its own limit of tokens.")
        author, run = rule.schedule.advance(
            self._author[slots],
            self._run[slots],
            is_boundary,
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
