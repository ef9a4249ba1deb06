"""What a graph on a GPU keeps of its capture beside the pool's memory.

Its kernels read tensors at the addresses of the capture, whatever stands in their place by now, and
were launched for the largest lengths that the host knew then. Here Python reads the objects of the
step which replays a graph: so these are compared, and tensors outside the pool are held by their
address alone.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_BOUNDS = ("max_query_len", "max_seq_len")
_BUILT_ANEW = ("scheduler_metadata",)
"""What the CPU's builder makes for each step, and those of GPUs keep in one place."""


class MovedError(AssertionError):
    """A graph would read memory that nobody writes any more."""


class FrozenMetadata:
    """The attention metadata of a capture: where its tensors lie, and its largest lengths."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self._addresses = _addresses(metadata)
        self._bounds = _bounds(metadata)

    def check(self, metadata: dict[str, Any]) -> None:
        """Raise :class:`MovedError` for a step that such a graph would not follow."""
        found = _addresses(metadata)
        if moved := [key for key, place in self._addresses.items() if found.get(key) != place]:
            raise MovedError(f"Attention's {moved} do not lie where they lay at the capture.")
        longer = [key for key, most in self._bounds.items() if _bounds(metadata)[key] > most]
        if longer:
            raise MovedError(f"Attention's {longer} are larger than at the capture.")


def _addresses(metadata: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (layer, name): value.data_ptr()
        for layer, one in metadata.items()
        for name, value in vars(one).items()
        if isinstance(value, torch.Tensor) and value.numel() and name not in _BUILT_ANEW
    }


def _bounds(metadata: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (layer, name): int(getattr(one, name))
        for layer, one in metadata.items()
        for name in _BOUNDS
        if hasattr(one, name)
    }


class Outside:
    """The tensors outside of its pool that a graph reads and writes, none of them held."""

    def __init__(self) -> None:
        self._storages: dict[int, StorageWeakRef] = {}

    def at_its_address(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory, of which the graph does not know whether it is still there."""
        storage = tensor.untyped_storage()
        if not storage.nbytes() or tensor.device.type != "cpu":
            return tensor
        self._storages[storage.data_ptr()] = StorageWeakRef(storage)
        memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
        raw = torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
        return raw.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def check(self) -> None:
        """Raise :class:`MovedError` where one of them is gone."""
        if gone := sum(storage.expired() for storage in self._storages.values()):
            raise MovedError(f"{gone} tensors that a graph reads were freed since its capture.")
