"""Functions that run inside the worker of an engine on a GPU."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import torch

from support.step_hooks import drafting_hooks, excepted, hooks

_replays: Counter[str] = Counter()


def count_replays(worker: Any) -> None:
    """Count the CUDA graphs that are replayed from now on."""
    graph = torch.cuda.CUDAGraph
    original = graph.replay

    def replay(self: Any) -> None:
        _replays["all"] += 1
        original(self)

    graph.replay = replay  # type: ignore[method-assign]


def refuse_waiting(worker: Any) -> None:
    """Let it be an error, from now on, that the host waits for the device in tandem's steps."""
    for owner, name in [*hooks(), *drafting_hooks()]:
        _in_debug_mode(owner, name, "error")
    for owner, name in excepted():
        _in_debug_mode(owner, name, "default")


def _in_debug_mode(owner: Any, name: str, mode: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **options: Any) -> Any:
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode(mode)
        try:
            return original(*args, **options)
        finally:
            torch.cuda.set_sync_debug_mode(before)

    setattr(owner, name, wrapper)


def replays(worker: Any) -> int:
    """How many were replayed since then."""
    return _replays["all"]


def asleep_gib(worker: Any) -> float:
    """GiB of this engine's memory that a sleep has given back, whatever others do on the device."""
    from vllm.device_allocator.cumem import CuMemAllocator

    blocks = CuMemAllocator.get_instance().pointer_to_data.values()
    return sum(block.handle[1] for block in blocks if block.is_asleep) / 2**30
