"""The memory of graphs: one pool whose blocks are given out again once nobody refers to them."""

from __future__ import annotations

import weakref
from collections.abc import Set
from dataclasses import dataclass

import numpy as np
import torch

from support.graphs.streams import current_stream

_GRAIN = 512
"""Bytes: PyTorch's allocator rounds sizes to it."""
_SEGMENT = 2 * 2**20
"""Bytes that are asked for at a time."""
_NAN = 0xFF
"""A byte of which every floating-point number made is not a number."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a segment of the pool."""

    segment: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class Pool:
    """Memory for tensors of graphs: as PyTorch's allocator, a freed block goes to the best fit."""

    def __init__(self) -> None:
        self._segments: list[np.ndarray] = []
        self._streams: list[object] = []
        """Whose memory each segment is: a freed block is given out again on its stream alone."""
        self._free: set[Block] = set()
        self._live: set[Block] = set()

    @property
    def live(self) -> frozenset[Block]:
        """The blocks of tensors that somebody refers to."""
        return frozenset(self._live)

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of this shape, strides, type and content, whose storage frees its block."""
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        memory = self._allocate(span * tensor.itemsize)
        copy = torch.from_numpy(memory).view(tensor.dtype)
        return copy.as_strided(tensor.shape, tensor.stride()).copy_(tensor)

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the pool."""
        place = tensor.untyped_storage().data_ptr()
        return any(0 <= place - one.ctypes.data < one.nbytes for one in self._segments)

    def weak(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory without holding it; a tensor of other memory as it is."""
        storage = tensor.untyped_storage()
        for segment in self._segments:
            start = storage.data_ptr() - segment.ctypes.data
            if 0 <= start < segment.nbytes:
                memory = torch.from_numpy(segment[start : start + storage.nbytes()])
                return memory.view(tensor.dtype).as_strided(
                    tensor.shape, tensor.stride(), tensor.storage_offset()
                )
        return tensor

    def spoil(self, kept: Set[Block]) -> None:
        """Fill all but these blocks with NaN."""
        for number, segment in enumerate(self._segments):
            end = 0
            for block in sorted((b for b in kept if b.segment == number), key=lambda b: b.start):
                segment[end : block.start] = _NAN
                end = block.stop
            segment[end:] = _NAN

    def _allocate(self, size: int) -> np.ndarray:
        rounded = -(-size // _GRAIN) * _GRAIN
        own = {n for n, stream in enumerate(self._streams) if stream is current_stream()}
        fitting = [b for b in self._free if b.size >= rounded and b.segment in own]
        if not fitting:
            self._streams.append(current_stream())
            self._segments.append(np.full(max(rounded, _SEGMENT), _NAN, dtype=np.uint8))
            fitting = [Block(len(self._segments) - 1, 0, self._segments[-1].nbytes)]
            self._free.add(fitting[0])
        found = min(fitting, key=lambda block: (block.size, block.segment, block.start))
        self._free.remove(found)
        taken = Block(found.segment, found.start, found.start + rounded)
        if taken.stop < found.stop:
            self._free.add(Block(found.segment, taken.stop, found.stop))
        self._live.add(taken)
        memory = self._segments[taken.segment][taken.start : taken.start + size]
        # The tensor's storage refers to this very array, and to nothing else of the pool.
        weakref.finalize(memory, self._release, taken).atexit = False
        return memory

    def _release(self, block: Block) -> None:
        self._live.remove(block)
        for other in [b for b in self._free if b.segment == block.segment]:
            if other.stop == block.start or block.stop == other.start:
                self._free.remove(other)
                block = Block(
                    block.segment, min(block.start, other.start), max(block.stop, other.stop)
                )
        self._free.add(block)
