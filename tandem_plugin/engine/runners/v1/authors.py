"""The authors of a running batch: one schedule state a request, advanced by vector operations."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.engine.record import AuthoredRequest
from tandem_plugin.engine.runners.resuming import Resumed, fill_draws, walk_all
from tandem_plugin.errors import AuthorshipError, EngineError
from tandem_plugin.rules import Rule

__all__ = ["BatchAuthors", "Written"]

_last = itemgetter(-1)


class Written(NamedTuple):
    """A token that a step brought."""

    row: int
    request: AuthoredRequest
    position: int
    """Its place in what the request has written."""
    author: bool


class BatchAuthors:
    """Who writes the next token of each request in a batch of at most ``size`` rows.

    State is held per slot in arrays ``[size]``; a row is a place in the engine's batch and points
    to a slot, so that moving rows moves no state. Rows without a slot are the senior's.
    """

    def __init__(self, size: int, max_positions: int) -> None:
        # Pages of memory are taken when they are first written: what nobody asks for costs nothing.
        self._draws = np.empty((size, max_positions), dtype=np.float64)
        self._written = np.empty((size, max_positions), dtype=np.bool_)
        self._limit = np.zeros(size, dtype=np.int64)
        self._author = np.ones(size, dtype=np.bool_)
        self._run = np.zeros(size, dtype=np.int64)
        self._position = np.zeros(size, dtype=np.int64)
        self._requests: list[AuthoredRequest | None] = [None] * size
        self._slot_of_row: dict[int, int] = {}
        self._free = list(range(size - 1, -1, -1))
        self._row = np.zeros(size, dtype=np.int64)
        self._slots_of_rule: dict[Rule, list[int]] = {}
        self._entered: list[int] = []
        """Slots whose requests entered since the last step: they have neither draws nor state."""

    def add(self, row: int, request: AuthoredRequest, positions: int) -> None:
        """Begin or resume a request in a row: its state is replayed from the tokens it has.

        That is done for all that enter at once, when the next authors are asked for.

        positions: how many tokens of output it can have; its draws are generated for these, from
        the response position on at which its output begins.
        """
        self.remove(row)
        slot = self._free.pop()
        self._place(slot, row)
        self._requests[slot] = request
        self._slots_of_rule.setdefault(request.rule, []).append(slot)
        self._limit[slot] = min(positions + 1, self._draws.shape[1])
        self._entered.append(slot)

    def remove(self, row: int) -> AuthoredRequest | None:
        """End the request in a row; returns it with its whole record, None for a row without."""
        slot = self._slot_of_row.pop(row, None)
        if slot is None:
            return None
        if slot in self._entered:
            self._enter()
        request = self._request(slot)
        slots = self._slots_of_rule[request.rule]
        slots.remove(slot)
        if not slots:
            del self._slots_of_rule[request.rule]
        self._requests[slot] = None
        self._free.append(slot)
        missing = len(request.output) - int(self._position[slot])
        if missing > 1:
            raise EngineError("TP343", missing=missing)
        request.authors = self._written[slot, : len(request.output)].tolist()
        return request

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
        self._enter()
        authors = np.ones(rows, dtype=np.bool_)
        for rule, members in self._slots_of_rule.items():
            slots = np.array(members, dtype=np.int64)
            self._take_in_tokens(rule, slots)
            own = self._row[slots]
            try:
                authors[own] = self._author[slots]
            except IndexError as error:
                raise EngineError("TP344", row=int(own.max()), rows=rows) from error
        return authors

    def written(self) -> list[Written]:
        """The tokens that came since :meth:`next_authors` was asked, before anything moves."""
        found = []
        for slots in self._slots_of_rule.values():
            for slot in slots:
                request, position = self._request(slot), int(self._position[slot])
                if len(request.output) == position + 1:
                    author = bool(self._written[slot, position])
                    found.append(Written(int(self._row[slot]), request, position, author))
        return found

    def _place(self, slot: int, row: int) -> None:
        self._slot_of_row[row] = slot
        self._row[slot] = row

    def _take_in_tokens(self, rule: Rule, slots: NDArray[np.int64]) -> None:
        outputs = [self._request(slot).output for slot in slots.tolist()]
        lengths = np.fromiter(map(len, outputs), np.int64, len(outputs))
        behind = lengths - self._position[slots]
        odd = slots[(behind < 0) | (behind > 1)]
        if odd.size:
            self._rebuild(odd.tolist())
        fresh = np.flatnonzero(behind == 1)
        if fresh.size:
            self._advance(rule, slots[fresh], [outputs[place] for place in fresh.tolist()])

    def _advance(self, rule: Rule, slots: NDArray[np.int64], outputs: list[list[int]]) -> None:
        """One step of a schedule for requests that got one token each."""
        tokens = np.fromiter(map(_last, outputs), np.int64, len(outputs))
        try:
            is_boundary = rule.boundaries.contains(tokens)
        except AuthorshipError as error:  # vLLM's place-holder for a token to come is negative
            raise EngineError("TP345") from error
        position = self._position[slots] + 1
        if (position >= self._limit[slots]).any():
            raise EngineError("TP346")
        author, run = rule.schedule.advance(
            self._author[slots], self._run[slots], is_boundary, self._draws[slots, position]
        )
        self._author[slots], self._run[slots] = author, run
        self._position[slots] = position
        self._written[slots, position] = author

    def _enter(self) -> None:
        """Give the requests that entered since the last step their draws and state."""
        entered, self._entered = self._entered, []
        if not entered:
            return
        resumed = [self._resumed(slot) for slot in entered]
        fill_draws([self._draws[slot, : self._limit[slot]] for slot in entered], resumed)
        self._rebuild(entered)

    def _rebuild(self, slots: Sequence[int]) -> None:
        """Derive the state of slots from the tokens that their requests have."""
        resumed = [self._resumed(slot) for slot in slots]
        for slot, request in zip(slots, resumed, strict=True):
            if len(request.output) >= self._limit[slot]:
                raise EngineError("TP346")
        for slot, request, walk in zip(slots, resumed, walk_all(resumed), strict=True):
            length = len(request.output)
            self._author[slot], self._run[slot] = walk.author, walk.run
            self._position[slot] = length
            self._written[slot, : length + 1] = walk.authors[len(request.prefix) :]

    def _resumed(self, slot: int) -> Resumed:
        request = self._request(slot)
        return Resumed(request.rule, request.seed, request.output, request.prefix)

    def _request(self, slot: int) -> AuthoredRequest:
        request = self._requests[slot]
        assert request is not None
        return request
