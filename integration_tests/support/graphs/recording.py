"""Stand-ins for ``torch.cuda.CUDAGraph`` and ``torch.cuda.graph``: record once, then run again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from support.graphs.pool import Block, Pool
from support.graphs.waiting import refuse, watched

__all__ = ["Capture", "Graph"]

_aten = torch.ops.aten
_UNWRITTEN = {_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty}


class Graph:
    """Operations over fixed memory."""

    replays = 0
    """How many graphs this process has replayed."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._calls: list[Callable[[], None]] = []
        self._pool: Pool
        self._kept: frozenset[Block]

    def begin(self, pool: Pool) -> None:
        """Begin a capture: what nobody refers to by now, this graph may overwrite."""
        self._pool, self._kept = pool, pool.live

    def add(self, call: Callable[[], None]) -> None:
        """Record an operation."""
        self._calls.append(call)

    def replay(self) -> None:
        """Run all operations again."""
        Graph.replays += 1
        self._pool.spoil(self._kept)
        for call in self._calls:
            call()

    def reset(self) -> None:
        self._calls.clear()


class Capture:
    """``with torch.cuda.graph(graph, pool)``: what runs within is recorded."""

    def __init__(self, cuda_graph: Graph, pool: Pool | None = None, **options: Any) -> None:
        self._graph, self._pool = cuda_graph, pool or Pool()
        self._stack = ExitStack()

    def __enter__(self) -> None:
        self._graph.begin(self._pool)
        self._stack.enter_context(watched("a captured region"))
        self._stack.enter_context(_Recorder(self._graph, self._pool))

    def __exit__(self, *error: Any) -> None:
        self._stack.close()


class _Recorder(TorchDispatchMode):
    """Gives what operations make memory of the pool, and records them over it."""

    def __init__(self, graph: Graph, pool: Pool) -> None:
        super().__init__()
        self._graph, self._pool = graph, pool

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        refuse(func, args, kwargs, "a captured region")
        known = {_memory(leaf) for leaf in _tensors((args, kwargs))}
        made: list[torch.Tensor] = []

        def at_home(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.numel() or _memory(tensor) in known:
                return tensor
            own = self._pool.like(tensor)
            made.append(self._pool.weak(own))
            return own

        results = func(*args, **kwargs)
        fresh = [tensor.numel() > 0 and _memory(tensor) not in known for tensor in _tensors(results)]
        outputs = tree_map_only(torch.Tensor, at_home, results)
        is_view = bool(fresh) and not any(fresh) and _tensors(results)[0].numel() > 0
        if func._schema.is_mutable or not (is_view or func.overloadpacket in _UNWRITTEN):
            self._graph.add(self._call(func, args, kwargs, fresh, made))
        return outputs

    def _call(
        self, func: Any, args: Any, kwargs: Any, fresh: list[bool], outputs: list[torch.Tensor]
    ) -> Callable[[], None]:
        """The operation over memory: what it writes goes where it went at the capture."""
        args, kwargs = tree_map_only(torch.Tensor, self._pool.weak, (args, kwargs))

        def call() -> None:
            results = _tensors(func(*args, **kwargs))
            new = [tensor for tensor, is_new in zip(results, fresh, strict=True) if is_new]
            for tensor, result in zip(outputs, new, strict=True):
                tensor.copy_(result)

        return call


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
