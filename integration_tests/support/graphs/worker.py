"""vLLM's CPU worker with CUDA graphs: captured at the engine's start as on a GPU."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import torch
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.triton_utils import HAS_TRITON
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.workspace import init_workspace_manager

from support.drafting import has_drafting
from support.graphs import streams
from support.graphs.front import platform_has_graphs
from support.graphs.frozen import FrozenMetadata
from support.graphs.pool import Pool
from support.graphs.recording import Capture, Graph
from support.graphs.rounds import record_rounds
from support.graphs.waiting import let_wait, watch
from support.step_hooks import drafting_hooks, excepted, hooks

replays: Counter[str] = Counter()
"""How many graphs of each mode were asked for."""

_pool = Pool()
"""All graphs of an engine share it."""
_platform = platform_has_graphs()
"""Entered for as long as the process lives."""


class GraphsWorker(CPUWorker):
    """As vLLM's worker on a GPU, in what concerns graphs."""

    def init_device(self) -> None:
        super().init_device()
        init_workspace_manager(self.device, 1)

    def load_model(self, *args: Any, **options: Any) -> None:
        super().load_model(*args, **options)
        runner = self.model_runner
        if self._mode.has_full_cudagraphs() and not self.use_v2_model_runner:
            # The runner for a GPU does so; that for a CPU leaves it out.
            runner.model = CUDAGraphWrapper(runner.model, self.vllm_config, CUDAGraphMode.FULL)

    def compile_or_warm_up_model(self) -> Any:
        times = super().compile_or_warm_up_model()
        self.model_runner.capture_model()
        return times

    @property
    def _mode(self) -> CUDAGraphMode:
        return self.vllm_config.compilation_config.cudagraph_mode


def _offer_graphs() -> None:
    """Let vLLM find what it asks of CUDA and of its platform."""
    import vllm.utils.torch_utils as torch_utils
    import vllm.v1.worker.gpu.cudagraph_utils as v2
    import vllm.v1.worker.gpu_model_runner as v1
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

    _platform.__enter__()
    CpuPlatform.graph_pool_handle = classmethod(lambda cls: _pool)
    CPUAttentionMetadataBuilder._cudagraph_support = AttentionCGSupport.UNIFORM_BATCH
    torch.cuda.CUDAGraph, torch.cuda.graph = Graph, Capture  # type: ignore[misc, assignment]
    torch.cuda.Stream = streams.Stream  # type: ignore[misc, assignment]
    torch.cuda.is_current_stream_capturing = streams.is_current_stream_capturing
    torch_utils.weak_ref_tensor = _weak
    for runner in (v1, v2):
        runner.graph_capture = lambda device: nullcontext()
    for name in ("synchronize", "empty_cache"):
        setattr(torch.accelerator, name, lambda *_: None)
    torch.accelerator.get_memory_info = lambda *_: (0, 0)


def _weak(tensor: Any) -> Any:
    return _pool.weak(tensor) if isinstance(tensor, torch.Tensor) and tensor.numel() else tensor


def _let_full_graphs_see_their_step() -> None:
    """Attention reads its step's metadata from the forward context, which V2 does not set there."""
    from vllm.forward_context import set_forward_context
    from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer
    from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager
    from vllm.v1.worker.gpu.model_states.default import DefaultModelState

    prepare, run = DefaultModelState.prepare_attn, ModelCudaGraphManager.run_fullgraph
    step: list[Any] = []

    class StepCapture(Capture):
        """Keeps what a graph on a GPU does of the metadata of its capture."""

        def __enter__(self) -> None:
            super().__enter__()
            if step:
                frozen[id(self._graph)] = FrozenMetadata(step[0])

    frozen: dict[int, FrozenMetadata] = {}
    torch.cuda.graph = StepCapture  # type: ignore[misc, assignment]

    def prepare_attn(
        self: Any, batch: Any, mode: Any, tables: Any, slots: Any, groups: Any, kv: Any, **more: Any
    ) -> Any:
        metadata = prepare(self, batch, mode, tables, slots, groups, kv, **more)
        step[:] = metadata, build_slot_mappings_by_layer(slots, kv)
        return metadata

    def run_fullgraph(self: Any, desc: Any) -> Any:
        metadata, slots = step
        replays["FULL"] += 1
        frozen[id(self.graphs[desc])].check(metadata)
        with set_forward_context(
            metadata, self.vllm_config, num_tokens=desc.num_tokens, slot_mapping=slots
        ):
            return run(self, desc)

    DefaultModelState.prepare_attn = prepare_attn
    ModelCudaGraphManager.run_fullgraph = run_fullgraph


def _compute_with_plain_weights() -> None:
    """Linear layers multiply by their parameter, as on a GPU: a CPU's packed copies are fixed."""
    from vllm.model_executor.layers import utils

    def plain(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = plain


def _check_addresses() -> None:
    """A graph's inputs must lie where they lay at its capture, and are counted by mode.

    So must what attention reads, where a graph holds that as well.
    """
    make, call = CUDAGraphWrapper.__init__, CUDAGraphWrapper.__call__

    def checking(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        # vLLM itself checks positional inputs where it logs everything.
        self.is_debugging_mode, self._runnable_str = True, str(type(self.runnable))
        self.named_addresses, self.frozen = {}, {}

    def with_named_inputs(self: Any, *args: Any, **inputs: Any) -> Any:
        context = get_forward_context() if is_forward_context_available() else None
        if context is not None and context.cudagraph_runtime_mode == self.runtime_mode:
            replays[self.runtime_mode.name] += 1
            found = {k: v.data_ptr() for k, v in inputs.items() if isinstance(v, torch.Tensor)}
            known = self.named_addresses.setdefault(context.batch_descriptor, found)
            assert found == known, f"Inputs of a graph lie at {found}, not at {known}."
            if self.runtime_mode == CUDAGraphMode.FULL:
                made = FrozenMetadata(context.attn_metadata)
                self.frozen.setdefault(context.batch_descriptor, made).check(context.attn_metadata)
        return call(self, *args, **inputs)

    CUDAGraphWrapper.__init__, CUDAGraphWrapper.__call__ = checking, with_named_inputs


def _watch_authors() -> None:
    """Refuse what lets the host wait in what tandem does within a step.

    Excepted are the kernels of Triton's interpreter as well, without which V2 does not run here.
    """
    for owner, name in hooks():
        watch(owner, name)
    if HAS_TRITON:
        from triton.runtime.interpreter import GridExecutor

        for owner, name in drafting_hooks():
            watch(owner, name)
        for owner, name in [*excepted(), (GridExecutor, "__call__")]:
            let_wait(owner, name)
        if has_drafting():
            record_rounds(replays)


_offer_graphs()
_let_full_graphs_see_their_step()
_compute_with_plain_weights()
_check_addresses()
_watch_authors()
