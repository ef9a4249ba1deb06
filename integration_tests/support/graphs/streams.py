"""Stand-ins for CUDA streams: what was captured on them runs again in any order that they allow."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch


class StreamError(AssertionError):
    """CUDA would refuse this capture."""


class Stream:
    """``torch.cuda.Stream``: work that runs in its own order."""

    def __init__(self, device: object = None) -> None:
        pass

    def wait_stream(self, other: Stream) -> None:
        if Work.current is not None:
            Work.current.wait(self, other)


forks: Counter[str] = Counter()
"""How many captures were forked to another stream."""

_main = Stream()
_stack = [_main]


def current_stream(device: object = None) -> Stream:
    return _stack[-1]


@contextmanager
def stream(one: Stream) -> Iterator[None]:
    _stack.append(one)
    try:
        yield
    finally:
        _stack.pop()


def is_current_stream_capturing() -> bool:
    return Work.current is not None


@contextmanager
def within_a_capture() -> Iterator[None]:
    """Within, PyTorch's functions find these streams."""
    with mock.patch.multiple(torch.cuda, current_stream=current_stream, stream=stream):
        yield


class Work:
    """The work of one capture, by stream, and what each piece has to wait for."""

    current: Work | None = None

    def __init__(self) -> None:
        self._queues: dict[Stream, list[tuple[Callable[[], None], dict[Stream, int]]]] = {}
        self._waits: dict[Stream, dict[Stream, int]] = {}
        self._order = random.Random(0)

    def begin(self) -> None:
        Work.current = self
        self._queues[current_stream()] = []

    def end(self) -> None:
        """All work of other streams must be waited for by now."""
        Work.current = None
        done = self._after(current_stream())
        if any(len(queue) > done.get(one, 0) for one, queue in self._queues.items()):
            raise StreamError("A capture ended with work that its stream does not wait for.")

    def wait(self, one: Stream, other: Stream) -> None:
        """What comes on ``one`` runs after all that was captured on ``other`` until now."""
        if other not in self._queues:
            raise StreamError("A capture waits for a stream that is not part of it.")
        if one not in self._queues:
            self._queues[one] = []
            forks["all"] += 1
        self._waits.setdefault(one, {}).update(self._after(other))

    def add(self, call: Callable[[], None]) -> None:
        one = current_stream()
        if one not in self._queues:
            raise StreamError("A stream works in a capture that it does not wait for.")
        self._queues[one].append((call, dict(self._waits.get(one, {}))))

    def run(self) -> None:
        """Run everything, each time in another order."""
        done = dict.fromkeys(self._queues, 0)
        while any(done[one] < len(queue) for one, queue in self._queues.items()):
            ready = [one for one in self._queues if self._is_ready(one, done)]
            one = self._order.choice(ready)
            for _ in range(self._order.choice([1, 8, 64])):
                if self._is_ready(one, done):
                    self._queues[one][done[one]][0]()
                    done[one] += 1

    def _is_ready(self, one: Stream, done: dict[Stream, int]) -> bool:
        if done[one] == len(self._queues[one]):
            return False
        return all(done[other] >= n for other, n in self._queues[one][done[one]][1].items())

    def _after(self, one: Stream) -> dict[Stream, int]:
        """How much of each stream has run where all of this one has."""
        return {**self._waits.get(one, {}), one: len(self._queues[one])}
