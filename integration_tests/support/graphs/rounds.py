"""The junior's rounds as graphs: what of them PyTorch does not dispatch, recorded as a GPU would.

A GPU's kernels of attention read lengths from memory that a graph itself writes between its passes,
and Triton's kernels are captured as any other. Here attention reads metadata that the CPU's builder
makes of these lengths: it is made anew where the round asks for it, within the replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from support.graphs.frozen import FrozenMetadata
from support.graphs.recording import Capture


def record_rounds(replays: Counter[str]) -> None:
    """Let captures hold kernels of Triton's, the contexts of passes and what attention reads.

    replays: where "ROUND" counts the graphs of rounds that were replayed.
    """
    _record_kernels()
    _record_contexts()
    _refresh_in_place()
    _check_metadata()
    _count_rounds(replays)


def _check_metadata() -> None:
    """What is built for a replay must lie where the capture's lay."""
    from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

    build = JuniorSpeculator._build_for_graph
    frozen: dict[tuple[int, int], list[FrozenMetadata]] = {}

    def checked(self: Any, rows: int, longest: Any, length: int, *, capturing: bool = False) -> Any:
        built = build(self, rows, longest, length, capturing=capturing)
        if capturing:
            frozen[rows, length] = [FrozenMetadata(one) for one in built]
        for kept, one in zip(frozen[rows, length], built, strict=True):
            kept.check(one)
        return built

    JuniorSpeculator._build_for_graph = checked


def _record_kernels() -> None:
    from triton.runtime.interpreter import GridExecutor

    run = GridExecutor.__call__

    def call(self: Any, *args: Any, **options: Any) -> None:
        if Capture.current is None:
            run(self, *args, **options)
        else:
            Capture.current.run_and_add(run, self, *args, **options)

    GridExecutor.__call__ = call


def _record_contexts() -> None:
    """A pass of a replay runs within the metadata of its capture."""
    from tandem_plugin.engine.speculative import draft_model

    set_context = draft_model.set_forward_context

    @contextmanager
    def recorded(metadata: Any, *args: Any, **options: Any) -> Iterator[None]:
        graph = Capture.current
        if graph is None:
            with set_context(metadata, *args, **options):
                yield
            return
        stack = ExitStack()
        graph.add(lambda: stack.enter_context(set_context(metadata, *args, **options)))
        with set_context(metadata, *args, **options):
            yield
        graph.add(stack.close)

    draft_model.set_forward_context = recorded


def _refresh_in_place() -> None:
    """The CPU's attention follows lengths where it is told to, and before a graph's first pass."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder as Builder

    from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

    def refresh(self: Any, metadata: Any) -> None:
        from vllm import _custom_ops as ops

        metadata.scheduler_metadata = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(metadata.seq_lens),
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            seq_lens=metadata.seq_lens,
            dtype=self.dtype,
            query_start_loc=metadata.query_start_loc,
            causal=metadata.causal,
            sliding_window_size=self.window_size,
            isa=self.isa,
            enable_kv_split=False,
        )

    def update(self: Any, metadata: Any) -> None:
        if Capture.current is None:  # vLLM runs a round before it captures it
            refresh(self, metadata)
        else:
            Capture.current.run_and_add(refresh, self, metadata)

    Builder.supports_draft_decode_metadata_update = True
    Builder.update_draft_decode_metadata = update
    draft = JuniorSpeculator._draft

    def drafting(self: Any, rows: int, metadata_of: Any, *rest: Any, **options: Any) -> None:
        """As a builder fills what a graph reads before it is replayed."""
        if Capture.current is not None:
            self._first.refresh(metadata_of(0))
        draft(self, rows, metadata_of, *rest, **options)

    JuniorSpeculator._draft = drafting


def _count_rounds(replays: Counter[str]) -> None:
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

    run = CudaGraphManager.run_fullgraph
    make = JuniorSpeculator.init_cudagraph_manager

    def counted(self: Any, mode: Any) -> None:
        make(self, mode)
        manager = self._graphs

        def run_fullgraph(desc: Any) -> None:
            replays["ROUND"] += 1
            run(manager, desc)

        manager.run_fullgraph = run_fullgraph

    JuniorSpeculator.init_cudagraph_manager = counted
