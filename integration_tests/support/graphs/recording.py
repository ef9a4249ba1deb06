"""Stand-ins for ``torch.cuda.CUDAGraph`` and ``torch.cuda.graph``: record once, then run again.

What was captured on several streams runs again in an order that only their waits determine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

from support.graphs import streams
from support.graphs.frozen import Outside
from support.graphs.pool import Block, Pool
from support.graphs.waiting import watched

_aten = torch.ops.aten
_UNWRITTEN = {_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty}
"""Operations that give memory, and write nothing there."""


class Graph:
    """Operations over fixed memory."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._work = streams.Work()
        self._pool: Pool
        self._kept: frozenset[Block]
        self._outside = Outside()

    def begin(self, pool: Pool) -> None:
        """Begin a capture: what nobody refers to by now, this graph may overwrite."""
        self._pool, self._kept = pool, pool.live
        self._work.begin()

    def end(self) -> None:
        """End a capture: all streams must have been joined."""
        self._work.end()

    def add(self, call: Callable[[], None]) -> None:
        """Record an operation."""
        self._work.add(call)

    def replay(self) -> None:
        """Run all operations again."""
        self._outside.check()
        self._pool.spoil(self._kept)
        self._work.run()

    def reset(self) -> None:
        self._work = streams.Work()

    def run_and_add(self, call: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Run and record what works on memory by itself, such as a kernel of Triton's."""
        with _disable_current_modes():
            call(*args, **options)
        weak = tree_map_only(torch.Tensor, self.weak, (args, options))
        self.add(lambda: call(*weak[0], **weak[1]))

    def weak(self, tensor: torch.Tensor) -> torch.Tensor:
        """The memory of a tensor, of the pool or outside, without holding it."""
        if self._pool.has(tensor):
            return self._pool.weak(tensor)
        return self._outside.at_its_address(tensor)


class Capture:
    """``with torch.cuda.graph(graph, pool)``: what runs within is recorded."""

    current: Graph | None = None
    """The graph that is being captured, for what PyTorch does not dispatch."""

    def __init__(self, cuda_graph: Graph, pool: Pool | None = None, **options: Any) -> None:
        self._graph, self._pool = cuda_graph, pool or Pool()
        self._stack = ExitStack()

    def __enter__(self) -> None:
        self._graph.begin(self._pool)
        self._stack.enter_context(streams.within_a_capture())
        self._stack.enter_context(watched("a captured region"))
        self._stack.enter_context(_Recorder(self._graph, self._pool))
        Capture.current = self._graph

    def __exit__(self, *error: Any) -> None:
        Capture.current = None
        self._stack.close()
        if error == (None, None, None):
            self._graph.end()


class _Recorder(TorchDispatchMode):
    """Gives what operations make memory of the pool, and records them over it."""

    def __init__(self, graph: Graph, pool: Pool) -> None:
        super().__init__()
        self._graph, self._pool = graph, pool

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = {_memory(tensor) for tensor in _tensors((args, kwargs))}

        def is_new(tensor: torch.Tensor) -> bool:
            return tensor.numel() > 0 and _memory(tensor) not in given

        results = func(*args, **kwargs)
        homes = [self._pool.like(t) if is_new(t) else None for t in _tensors(results)]
        if func._schema.is_mutable or not (
            func.overloadpacket in _UNWRITTEN or _is_view(results, homes)
        ):
            self._graph.add(self._call(func, args, kwargs, homes))
        left = iter(homes)

        def at_home(tensor: torch.Tensor) -> torch.Tensor:
            home = next(left)
            return tensor if home is None else home

        return tree_map_only(torch.Tensor, at_home, results)

    def _call(
        self, func: Any, args: Any, kwargs: Any, homes: list[torch.Tensor | None]
    ) -> Callable[[], None]:
        """The operation over memory: what it makes goes where it went at the capture."""
        args, kwargs = tree_map_only(torch.Tensor, self._graph.weak, (args, kwargs))
        outputs = [home if home is None else self._pool.weak(home) for home in homes]

        def call() -> None:
            for output, result in zip(outputs, _tensors(func(*args, **kwargs)), strict=True):
                if output is not None:
                    output.copy_(result)

        return call


def _is_view(results: Any, homes: list[torch.Tensor | None]) -> bool:
    """Whether an operation only shows memory that it was given; its work may lie elsewhere too."""
    tensors = _tensors(results)
    return (
        bool(tensors) and all(t.numel() for t in tensors) and not any(h is not None for h in homes)
    )


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
