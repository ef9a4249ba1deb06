"""Whole CUDA graphs of the junior's rounds, by vLLM's own sizes, manager and dispatch.

No graph is captured.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from vllm.config import VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu import cudagraph_utils
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

from tandem_plugin.engine.speculative.speculator import JuniorSpeculator

SEQS, WIDTH, DRAFTS = 256, 2, 4


def config() -> Any:
    """An engine's configuration, with vLLM's default sizes of graphs."""
    compilation = SimpleNamespace(
        cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE,
        max_cudagraph_capture_size=None,
        cudagraph_capture_sizes=None,
        pass_config=SimpleNamespace(enable_sp=False),
        post_init_cudagraph_sizes=lambda: None,
    )
    found = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        speculative_config=SimpleNamespace(
            num_speculative_tokens=DRAFTS, uses_dynamic_speculative_decoding=lambda: False
        ),
        num_speculative_tokens=DRAFTS,
        uniform_decode_query_len=DRAFTS + 1,
        scheduler_config=SimpleNamespace(max_num_seqs=SEQS, max_num_batched_tokens=8192),
        parallel_config=SimpleNamespace(data_parallel_size=1, tensor_parallel_size=1),
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        compilation_config=compilation,
        performance_mode="balanced",
        additional_config={"tandem": {}},
    )
    VllmConfig._set_cudagraph_sizes(found)
    return found


def test_every_round_within_the_largest_graph_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    monkeypatch.setattr(cudagraph_utils, "get_pp_group", lambda: group)
    platform = SimpleNamespace(get_global_graph_pool=lambda: None)
    monkeypatch.setattr(cudagraph_utils, "current_platform", platform)
    of, made = config(), object.__new__(JuniorSpeculator)
    mode = CUDAGraphMode.FULL_DECODE_ONLY
    made._graphs = CudaGraphManager(of, torch.device("cpu"), mode, WIDTH)
    assert made._graph_of(1) is None, "before they are captured"
    made._graphs._graphs_captured = True
    captured = made._graphs._capture_descs[CUDAGraphMode.FULL]
    taken = set()
    for requests in range(1, SEQS + 1):
        graph = made._graph_of(requests)
        if WIDTH * requests > of.compilation_config.max_cudagraph_capture_size:
            assert graph is None
            continue
        assert graph in captured
        assert graph.num_reqs >= requests
        taken.add(graph)
    assert taken == set(captured), "none is captured that no batch takes"
