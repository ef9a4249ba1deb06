"""The draws of a running batch in one array, which the host writes and the device reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["DrawsTable", "Memory"]

Memory: TypeAlias = Callable[[int], tuple[NDArray[np.float64], torch.Tensor]]
"""Makes memory for so many draws, as the host and as the device sees it: float64 ``[places]``."""

_FIRST_PLACES = 2**17


class DrawsTable:
    """The draws of a batch's requests: of each as many places in a row as it may need.

    Written by the host when a request enters, read by the device one a step. Memory doubles when
    the requests need more at once, so that nothing is taken for lengths that nobody asks for.
    """

    def __init__(self, memory: Memory, first: int) -> None:
        """first: the place of the first request; those before it are nobody's."""
        self._memory, self._end = memory, first
        self.host, self.view = memory(max(_FIRST_PLACES, first))
        self._outgrown: list[tuple[NDArray[np.float64], torch.Tensor]] = []
        """Still read by the device in steps that were launched before the last growth."""
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
        """Let others have the places that :meth:`take` gave."""
        self._free.setdefault(_room(length), []).append(first)

    def _grow(self) -> None:
        former = self.host
        self._outgrown.append((former, self.view))
        self.host, self.view = self._memory(1 << (self._end - 1).bit_length())
        self.host[: len(former)] = former


def _room(length: int) -> int:
    """A length rounded up by at most an eighth, so that few different ones are taken."""
    step = max(64, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step
