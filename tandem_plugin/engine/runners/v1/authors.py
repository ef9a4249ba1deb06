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


class _Group:
    """The requests of the batch that follow one rule, so that one step advances them all.

    While the group stays as it is, its state stands in arrays of its own, in the order of its
    slots, so that a step neither gathers nor scatters: see :meth:`BatchAuthors._gather`.
    """

    __slots__ = (
        *("slots", "outputs", "rows"),
        *("is_gathered", "author", "run", "position", "place", "room"),
    )

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.outputs: list[list[int]] = []
        self.is_gathered = False
        self.rows: NDArray[np.int64] | None = None
        """The row of each request; None after one moved."""
        self.author: NDArray[np.bool_]
        self.run: NDArray[np.int64]
        self.position: NDArray[np.int64]
        self.place: NDArray[np.int64]
        """Where ``position`` lies in the flat arrays of draws and of what was written."""
        self.room: int
        """So many tokens every request may get at least before it must be checked again."""


class BatchAuthors:
    """Who writes the next token of each request in a batch of at most ``size`` rows.

    State is held per slot in arrays ``[size]``; a row is a place in the engine's batch and points
    to a slot, so that moving rows moves no state. Rows without a slot are the senior's.
    """

    def __init__(self, size: int, max_positions: int) -> None:
        # Pages of memory are taken when they are first written: what nobody asks for costs nothing.
        self._draws = np.empty((size, max_positions), dtype=np.float64)
        self._written = np.empty((size, max_positions), dtype=np.bool_)
        self._flat_draws, self._flat_written = self._draws.ravel(), self._written.ravel()
        self._limit = np.zeros(size, dtype=np.int64)
        self._author = np.ones(size, dtype=np.bool_)
        self._run = np.zeros(size, dtype=np.int64)
        self._position = np.zeros(size, dtype=np.int64)
        self._requests: list[AuthoredRequest | None] = [None] * size
        self._slot_of_row: dict[int, int] = {}
        self._free = list(range(size - 1, -1, -1))
        self._row = np.zeros(size, dtype=np.int64)
        self._groups: dict[Rule, _Group] = {}
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
        group = self._groups.setdefault(request.rule, _Group())
        self._scatter(group)
        group.slots.append(slot)
        group.outputs.append(request.output)
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
        group = self._groups[request.rule]
        self._scatter(group)
        self._requests[slot] = None
        self._free.append(slot)
        place = group.slots.index(slot)
        del group.slots[place], group.outputs[place]
        if not group.slots:
            del self._groups[request.rule]
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
        for rule, group in self._groups.items():
            self._take_in_tokens(rule, group)
            if group.rows is None:
                group.rows = self._row[group.slots]
            try:
                authors[group.rows] = group.author
            except IndexError as error:
                raise EngineError("TP344", row=int(group.rows.max()), rows=rows) from error
        return authors

    def written(self) -> list[Written]:
        """The tokens that came since :meth:`next_authors` was asked, before anything moves."""
        found = []
        for group in self._groups.values():
            positions = group.position if group.is_gathered else self._position[group.slots]
            for slot, position in zip(group.slots, positions.tolist(), strict=True):
                request = self._request(slot)
                if len(request.output) == position + 1:
                    author = bool(self._written[slot, position])
                    found.append(Written(int(self._row[slot]), request, position, author))
        return found

    def _place(self, slot: int, row: int) -> None:
        self._slot_of_row[row] = slot
        self._row[slot] = row
        request = self._requests[slot]
        if request is not None:
            self._groups[request.rule].rows = None

    def _gather(self, group: _Group) -> None:
        """Let a group's state stand in its own arrays."""
        slots = np.array(group.slots, dtype=np.int64)
        group.author, group.run = self._author[slots], self._run[slots]
        group.position = self._position[slots]
        group.place = slots * self._draws.shape[1] + group.position
        group.room = int((self._limit[slots] - 1 - group.position).min())
        group.is_gathered = True

    def _scatter(self, group: _Group) -> None:
        """Write a group's state back to its slots, for its members change now."""
        if group.is_gathered:
            self._author[group.slots] = group.author
            self._run[group.slots] = group.run
            self._position[group.slots] = group.position
        group.is_gathered = False
        group.rows = None

    def _take_in_tokens(self, rule: Rule, group: _Group) -> None:
        if not group.is_gathered:
            self._gather(group)
        outputs = group.outputs
        lengths = np.fromiter(map(len, outputs), np.int64, len(outputs))
        behind = lengths - group.position
        if (behind == 1).all():  # an ordinary step
            self._advance(rule, group, slice(None), outputs)
            return
        odd = np.flatnonzero((behind < 0) | (behind > 1)).tolist()
        if odd:
            self._scatter(group)
            self._rebuild([group.slots[place] for place in odd])
            self._gather(group)
        fresh = np.flatnonzero(behind == 1)
        if fresh.size:
            self._advance(rule, group, fresh, [outputs[place] for place in fresh.tolist()])

    def _advance(
        self,
        rule: Rule,
        group: _Group,
        which: slice | NDArray[np.int64],
        outputs: list[list[int]],
    ) -> None:
        """One step of a schedule for those requests of a group that got one token each."""
        tokens = np.fromiter(map(_last, outputs), np.int64, len(outputs))
        try:
            is_boundary = rule.boundaries.contains(tokens)
        except AuthorshipError as error:  # vLLM's place-holder for a token to come is negative
            raise EngineError("TP345") from error
        if group.room < 1:
            self._check_room(group, which)
        place = group.place[which] + 1
        author, run = rule.schedule.advance(
            group.author[which], group.run[which], is_boundary, self._flat_draws.take(place)
        )
        self._flat_written[place] = author
        group.author[which], group.run[which], group.place[which] = author, run, place
        group.position[which] += 1
        group.room -= 1

    def _check_room(self, group: _Group, which: slice | NDArray[np.int64]) -> None:
        room = self._limit[group.slots] - 1 - group.position
        if int(room[which].min()) < 1:
            raise EngineError("TP346")
        group.room = int(room.min())

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
