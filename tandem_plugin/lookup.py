"""Small tables that schedules read: one code for NumPy arrays and for torch tensors anywhere."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Lookup:
    """A table of integers, read at an array of indices.

    A schedule that is an automaton keeps its transitions in one, since operators alone read no
    table. values: integers ``[entries]``. The table is copied to a device when it is first read
    there, so later steps wait for nothing.
    """

    def __init__(self, values: ArrayLike) -> None:
        self._values: NDArray[np.int64] = np.array(values, dtype=np.int64).ravel()
        self._on_device: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __call__(self, index: Any) -> Any:
        """The entries at ``index``, an int64 array or tensor of any shape: int64, like it."""
        if isinstance(index, np.ndarray):
            return self._values[index]
        table = self._on_device.get(index.device)
        if table is None:
            table = self._on_device[index.device] = self._copied(index.device)
        # The faster of the two on a CPU, for one dimension.
        return table.index_select(0, index) if index.ndim == 1 else table.take(index)

    def _copied(self, device: Any) -> Any:
        host = sys.modules["torch"].from_numpy(self._values)
        if device.type == "cuda":
            host = host.pin_memory()
        return host.to(device, non_blocking=True)
