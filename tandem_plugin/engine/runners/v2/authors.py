"""The authors of a running batch on the device: state per slot in tensors, no host synchronisation.

The host knows each slot's rule, and writes a slot's state when a request enters it. From then on
every step consists of tensor operations over all slots, and masks select between rules: elementwise
operations over a few hundred slots cost less than gathering a rule's slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.engine.runners.resuming import Resumed, fill_draws, walk_all
from tandem_plugin.errors import EngineError
from tandem_plugin.rules import Rule

Memory: TypeAlias = Callable[[int], tuple[NDArray[np.float64], torch.Tensor]]
"""Allocates memory for draws, as seen by the host and by the device: float64 ``[places]``."""

_FIRST_PLACES = 2**17


class DrawsTable:
    """The draws of a batch's requests: consecutive places for each, as many as it may need.

    Written by the host when a request enters, read by the device, one per step. Memory doubles when
    requests need more, so none is allocated for lengths that no request has.
    """

    def __init__(self, memory: Memory, first: int) -> None:
        """first: the place of the first request; earlier places stay unused."""
        self._memory, self._end = memory, first
        self.host, self.view = memory(max(_FIRST_PLACES, first))
        self._outgrown: list[tuple[NDArray[np.float64], torch.Tensor]] = []
        """Former memory, which steps launched before the last growth still read."""
        self._free: dict[int, list[int]] = {}

    def take(self, length: int) -> int:
        """The first of ``length`` places in a row."""
        room = _room(length)
        if free := self._free.get(room):
            return free.pop()
        first, self._end = self._end, self._end + room
        if self._end > len(self.host):
            self._grow()
        return first

    def give_back(self, first: int, length: int) -> None:
        """Free the places that :meth:`take` returned."""
        self._free.setdefault(_room(length), []).append(first)

    def _grow(self) -> None:
        former = self.host
        self._outgrown.append((former, self.view))
        self.host, self.view = self._memory(1 << (self._end - 1).bit_length())
        self.host[: len(former)] = former


def _room(length: int) -> int:
    """A length rounded up by at most an eighth, so that few different lengths occur."""
    step = max(64, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step


@dataclass(slots=True)
class SlotRequest:
    """A tandem request, its slot and its places in the table of draws."""

    rule: Rule
    seed: int
    slot: int
    first: int
    limit: int
    """Number of draws it may need."""
    prefix: Sequence[int] = ()
    """The beginning of the response, from an earlier request with the same seed."""
    author: bool = True
    """Who writes its first token in this slot, once its state is written; true = senior."""


@dataclass(slots=True)
class _Group:
    """The slots that follow one rule, on the host and on the device."""

    token_class: torch.Tensor
    """What the schedule reads of each token id: bool ``[vocabulary]``, or int64 for classes."""
    members: set[int] = field(default_factory=set)
    mask: torch.Tensor | None = None
    """bool ``[size]``, true for members; None if the members have changed since."""


class DeviceAuthors:
    """Who writes the next token of the request in each of ``size`` slots.

    vocabulary: number of token ids the engine may sample. memory: allocates the draws' memory.
    record: whether to keep who wrote each token, for audits.
    """

    def __init__(
        self, size: int, vocabulary: int, device: torch.device, memory: Memory, *, record: bool
    ) -> None:
        self._size, self._vocabulary, self._device = size, vocabulary, device
        self._draws = DrawsTable(memory, first=size)
        self._author = torch.ones(size, dtype=torch.bool, device=device)
        self._run = torch.zeros(size, dtype=torch.int64, device=device)
        # Each slot without a request uses its own place among the first.
        self._place = torch.arange(size, dtype=torch.int64, device=device)
        self._first_place, self._last_place = self._place.clone(), self._place.clone()
        self._fresh = torch.zeros(size, dtype=torch.bool, device=device)
        self._record = torch.zeros(0, dtype=torch.bool, device=device) if record else None
        self._groups: dict[Rule, _Group] = {}
        self._staged: dict[int, tuple[bool, int, int, int, int]] = {}
        self._entered: dict[int, tuple[SlotRequest, Resumed]] = {}

    @property
    def any_in_tandem(self) -> bool:
        """Whether any slot holds a tandem request."""
        return bool(self._groups)

    def add(
        self,
        slot: int,
        rule: Rule,
        seed: int,
        output: list[int],
        positions: int,
        prefix: Sequence[int] = (),
    ) -> SlotRequest:
        """Add a request, new or resumed, to a slot; its state is replayed from its tokens.

        :meth:`write_staged` does this for all entering requests together.

        output: the tokens written so far. positions: the maximum number of output tokens. prefix:
        the beginning of the response, from an earlier request with the same seed. Draws and record
        of the slot begin with the output.
        """
        limit = positions + 1
        if len(output) >= limit:
            raise EngineError("token-buffer-full", tokens=len(output))
        group = self._groups.get(rule)
        if group is None:
            group = self._groups[rule] = _Group(self._class_table(rule))
        group.members.add(slot)
        group.mask = None
        slot_request = SlotRequest(rule, seed, slot, self._draws.take(limit), limit, prefix)
        self._entered[slot] = slot_request, Resumed(rule, seed, output, prefix)
        return slot_request

    def remove(self, slot_request: SlotRequest) -> None:
        """Remove a request from its slot."""
        slot = slot_request.slot
        self._entered.pop(slot, None)
        # The senior's, unless another request enters.
        self._staged[slot] = (True, 0, slot, slot, slot)
        self._draws.give_back(slot_request.first, slot_request.limit)
        group = self._groups[slot_request.rule]
        group.members.discard(slot)
        group.mask = None
        if not group.members:
            del self._groups[slot_request.rule]

    def write_staged(self) -> None:
        """Write the state of the requests that entered since the last call to the device."""
        self._enter()
        if not self._staged:
            return
        slots = self._to_device(np.fromiter(self._staged, np.int64, len(self._staged)))
        state = self._to_device(np.array(list(self._staged.values()), dtype=np.int64))
        self._author[slots] = state[:, 0] != 0
        self._run[slots] = state[:, 1]
        self._place[slots] = state[:, 2]
        self._first_place[slots] = state[:, 3]
        self._last_place[slots] = state[:, 4]
        self._staged.clear()

    def _enter(self) -> None:
        """Give the requests that entered their draws, and stage their state."""
        entered = list(self._entered.values())
        self._entered.clear()
        if not entered:
            return
        slot_requests, requests = (
            [slot_request for slot_request, _ in entered],
            [request for _, request in entered],
        )
        rows = [
            self._draws.host[slot_request.first : slot_request.first + slot_request.limit]
            for slot_request in slot_requests
        ]
        fill_draws(rows, requests)
        walks = walk_all(requests)
        for (slot_request, request), walk in zip(entered, walks, strict=True):
            place, last = (
                slot_request.first + len(request.output),
                slot_request.first + slot_request.limit - 1,
            )
            slot_request.author = walk.author
            self._staged[slot_request.slot] = (
                walk.author,
                walk.run,
                place,
                slot_request.first,
                last,
            )
        if self._record is not None:
            self._record = self._grown(self._record)
            lengths = [len(request.prefix) for request in requests]
            written = [walk.authors[n:-1] for n, walk in zip(lengths, walks, strict=True)]
            self._write_record(self._record, slot_requests, written)

    def _grown(self, record: torch.Tensor) -> torch.Tensor:
        """The record, with one entry per draw."""
        missing = len(self._draws.host) - len(record)
        return torch.cat([record, record.new_zeros(missing)]) if missing else record

    def _write_record(
        self,
        record: torch.Tensor,
        slot_requests: Sequence[SlotRequest],
        written: Sequence[NDArray[np.bool_]],
    ) -> None:
        """Record the authors of the tokens that each slot's request already has."""
        places = [
            slot_request.first + np.arange(len(authors))
            for slot_request, authors in zip(slot_requests, written, strict=True)
        ]
        where, authors_written = np.concatenate(places), np.concatenate(written)
        record.index_copy_(0, self._to_device(where), self._to_device(authors_written))

    def of(self, slots: torch.Tensor) -> torch.Tensor:
        """Who writes the next token of these slots: bool ``[slots]``, true = senior.

        slots: int ``[slots]`` on the device. Slots without a tandem request are the senior's.
        """
        return self._author.index_select(0, slots)

    def in_tandem(self, slots: torch.Tensor) -> torch.Tensor:
        """Which of these slots hold a tandem request: bool ``[slots]``."""
        is_tandem = torch.zeros_like(self._author)
        for group in self._groups.values():
            is_tandem = is_tandem | self._mask_of(group)
        return is_tandem.index_select(0, slots)

    def lengths(self, slots: torch.Tensor) -> torch.Tensor:
        """Number of tokens written by the requests in these slots: int64, shaped like ``slots``."""
        return (self._place - self._first_place).index_select(0, slots)

    def advance(
        self, slots: torch.Tensor, num_sampled: torch.Tensor, last_tokens: torch.Tensor
    ) -> None:
        """Advance by the step's tokens: choose the next author wherever one was sampled.

        slots: int ``[rows]``, the slots of the batch. num_sampled: int ``[rows]``, 1 where the row
        sampled a token, 0 where its prompt is not yet complete. last_tokens: int64 ``[size]``, the
        last sampled token of every slot.
        """
        if not self._groups:
            return
        # index_select and scatter_: half the time of indexing on a CPU.
        fresh = self._fresh.zero_().scatter_(0, slots.long(), num_sampled > 0)
        if self._record is not None:
            recorded = self._record.index_select(0, self._place)
            self._record.scatter_(0, self._place, torch.where(fresh, self._author, recorded))
        self._place = torch.minimum(self._place + fresh, self._last_place)
        u = self._draws.view.index_select(0, self._place)
        tokens = last_tokens * fresh  # arbitrary where no token was sampled
        self._author, self._run = self._chosen(self._author, self._run, tokens, u, fresh)

    def _chosen(
        self,
        author: torch.Tensor,
        run: torch.Tensor,
        tokens: torch.Tensor,
        u: torch.Tensor,
        moving: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next author and run of every slot, each by its own rule.

        author, tokens: who wrote the last token and which it was, ``[size]``. u: the draws of the
        next position. moving: bool ``[size]``, the slots with a last token; None for all.
        """
        chosen_author, chosen_run = author, run
        # A slot that was left keeps its run until that of the next request is written.
        several = len(self._groups) > 1 or bool(self._staged)
        for rule, group in self._groups.items():
            mask = self._mask_of(group)
            # A table of transitions has no entries for the runs of other schedules.
            own_run = run * mask if several and rule.boundaries.classes else run
            next_author, next_run = rule.schedule.advance(
                author, own_run, group.token_class.index_select(0, tokens), u
            )
            ours = mask if moving is None else moving & mask
            chosen_author = torch.where(ours, next_author, chosen_author)
            chosen_run = torch.where(ours, next_run, chosen_run)
        return chosen_author, chosen_run

    def recorded(self, slot_request: SlotRequest, length: int) -> list[bool]:
        """Who wrote the first ``length`` tokens of a request, from the engine's own state.

        Waits for the device. Requires ``record``.
        """
        assert self._record is not None
        first = slot_request.first
        return [bool(author) for author in self._record[first : first + length].tolist()]

    def _mask_of(self, group: _Group) -> torch.Tensor:
        if group.mask is None:
            mask = np.zeros(self._size, dtype=np.bool_)
            mask[list(group.members)] = True
            group.mask = self._to_device(mask)
        return group.mask

    def _class_table(self, rule: Rule) -> torch.Tensor:
        classes = rule.boundaries.table[: self._vocabulary]
        table = np.zeros(self._vocabulary, dtype=classes.dtype)
        table[: classes.size] = classes
        return self._to_device(table)

    def _to_device(self, values: NDArray[Any]) -> torch.Tensor:
        return to_device(values, self._device)


def to_device(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy host values to the device without waiting."""
    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
