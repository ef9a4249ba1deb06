"""Whole CUDA graphs of the speculative mode, by vLLM's own sizes, manager and dispatch.

Of the senior's steps and of the junior's rounds; no graph is captured.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

import torch
from vllm.config import VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu import cudagraph_utils
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

from tandem_plugin.engine.speculative import patches
from tandem_plugin.engine.speculative.configure import table_of_setting
from tandem_plugin.engine.speculative.draft_choice import CANDIDATES
from tandem_plugin.engine.speculative.speculator import RoundGraphs, draft_lengths

FULL, PIECEWISE = CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE
SEQS, WIDTH = 256, 2
CPU = torch.device("cpu")
TABLES = [
    {1: 8, 16: 4, 64: 0},
    {1: 8, 9: 4, 33: 2, 65: 1, 129: 0},
    {1: 0, 2: 3, 100: 1},
    {1: 6, 20: 0, 21: 6},
]
WITHOUT = {str(TABLES[3]): [73]}
"""511 tokens, of which vLLM captures no multiple of seven up to its largest graph, of 512."""


@pytest.fixture(scope="module", autouse=True)
def managers() -> Any:
    """vLLM's managers as an engine in tandem has them, in a process without a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        group = SimpleNamespace(is_first_rank=True, is_last_rank=True)
        patch.setattr(cudagraph_utils, "get_pp_group", lambda: group)
        platform = SimpleNamespace(get_global_graph_pool=lambda: None)
        patch.setattr(cudagraph_utils, "current_platform", platform)
        patch.setattr(CudaGraphManager, "_init_candidates", CudaGraphManager._init_candidates)
        patches._wrap_graphs(cudagraph_utils)
        yield


class Drafting(SimpleNamespace):
    """vLLM's ``SpeculativeConfig``, as far as graphs go by it."""

    def uses_dynamic_speculative_decoding(self) -> bool:
        return self.num_speculative_tokens_per_batch_size is not None


def config(drafts: int | dict[int, int] | str, *, tandem: bool = True) -> Any:
    """An engine's configuration, with vLLM's default sizes of graphs."""
    most = max(drafts.values()) if isinstance(drafts, dict) else drafts
    most = max(CANDIDATES) if drafts == "auto" else most
    compilation = SimpleNamespace(
        cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE,
        max_cudagraph_capture_size=None,
        cudagraph_capture_sizes=None,
        pass_config=SimpleNamespace(enable_sp=False),
        post_init_cudagraph_sizes=lambda: None,
    )
    found = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        speculative_config=Drafting(
            num_speculative_tokens=most,
            num_speculative_tokens_per_batch_size=table_of_setting(drafts, SEQS),
        ),
        num_speculative_tokens=most,
        uniform_decode_query_len=most + 1,
        scheduler_config=SimpleNamespace(max_num_seqs=SEQS, max_num_batched_tokens=8192),
        parallel_config=SimpleNamespace(data_parallel_size=1, tensor_parallel_size=1),
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        compilation_config=compilation,
        performance_mode="balanced",
        additional_config={"tandem": {"drafts": drafts}} if tandem else {},
    )
    VllmConfig._set_cudagraph_sizes(found)
    return found


def senior_graphs(of: Any) -> Any:
    """vLLM's manager of the senior's steps, as if all its graphs had been captured."""
    mode, width = of.compilation_config.cudagraph_mode, of.num_speculative_tokens + 1
    made = CudaGraphManager(of, CPU, mode, width)
    made._graphs_captured = True
    return made


def missing(manager: Any, of: Any) -> dict[int, Any]:
    """The batch sizes within the largest graph that decode without a whole one of their own."""
    found = {}
    largest = of.compilation_config.max_cudagraph_capture_size
    for requests, lengths in enumerate(draft_lengths(of)[1:], start=1):
        (length,) = lengths
        tokens = requests * (length + 1)
        if tokens > largest:
            continue
        graph = manager.dispatch(requests, tokens, length + 1, 0)
        whole = graph.cg_mode == FULL and graph.uniform_token_count == length + 1
        if not whole or graph.num_reqs < requests or graph not in manager._capture_descs[FULL]:
            found[requests] = graph
    return found


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_every_batch_size_has_a_whole_graph_of_its_own_length(table: dict[int, int]) -> None:
    of, plain = config(table), config(table, tandem=False)
    manager, vllms = senior_graphs(of), senior_graphs(plain)
    assert set(missing(manager, of)) <= set(WITHOUT.get(str(table), ()))
    assert set(missing(manager, of)) <= set(missing(vllms, plain))
    whole = manager._capture_descs[FULL]
    assert len(whole) < 0.6 * len(vllms._capture_descs[FULL])
    assert whole == sorted(whole, key=lambda desc: -desc.num_tokens), "the largest first"


def test_graphs_of_a_small_table_are_those_drawn_beside_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the docstring of ``_keep_graphs``: requests x tokens of each."""

    def drawn(graphs: Any) -> list[str]:
        return [f"{d.num_reqs}x{d.uniform_token_count}" for d in graphs if d.cg_mode == FULL]

    monkeypatch.setattr(sys.modules[__name__], "SEQS", 4)
    small = {1: 2, 3: 0}
    vllms, manager = senior_graphs(config(small, tandem=False)), senior_graphs(config(small))
    of_vllm = ["1x1", "1x3", "2x1", "2x3", "3x1", "3x3", "4x1"]
    assert sorted(drawn(vllms._capture_descs[FULL])) == of_vllm
    assert sorted(drawn(manager._capture_descs[FULL])) == ["1x3", "2x3", "3x1", "4x1"]
    assert drawn(vllms._candidates[4, 0]) == ["4x1"]
    assert drawn(manager._candidates[4, 0]) == ["4x1", "2x3"]


def test_whole_graphs_of_mixed_batches_stay_vllms_own() -> None:
    """Of an engine that captures every step whole, whatever its requests read."""
    of, plain = config(TABLES[0]), config(TABLES[0], tandem=False)
    for one in (of, plain):
        one.compilation_config.cudagraph_mode = FULL
    manager, vllms = senior_graphs(of), senior_graphs(plain)
    assert manager._capture_descs == vllms._capture_descs
    assert len(manager._capture_descs[FULL]) > 10
    assert manager._candidates == vllms._candidates


def test_batches_between_two_lengths_and_mixed_ones_have_graphs_as_well() -> None:
    """Requests that end leave fewer with the drafts of the larger batch."""
    of = config(TABLES[0])
    manager = senior_graphs(of)
    for requests in range(1, 16):
        graph = manager.dispatch(requests, requests * 5, 5, 0)
        assert (graph.cg_mode, graph.uniform_token_count) == (FULL, 5)
        assert graph.num_reqs >= 16
    assert manager.dispatch(5, 37, None, 0).cg_mode == PIECEWISE
    assert manager.dispatch(1, 600, None, 0).cg_mode == CUDAGraphMode.NONE


def test_engines_with_one_length_and_those_not_in_tandem_have_vllms_own_graphs() -> None:
    for drafts, tandem in ((4, True), ({1: 8, 9: 2}, False)):
        of = config(drafts, tandem=tandem)
        plain = config(drafts, tandem=False)
        assert senior_graphs(of)._candidates == senior_graphs(plain)._candidates
        assert senior_graphs(of)._capture_descs == senior_graphs(plain)._capture_descs


@pytest.mark.parametrize("drafts", [*TABLES, 4], ids=str)
def test_every_round_has_the_graph_of_its_batch_sizes_length(
    drafts: int | dict[int, int],
) -> None:
    of = config(drafts)
    rounds = RoundGraphs(of, CPU, CUDAGraphMode.FULL_DECODE_ONLY, WIDTH, draft_lengths(of))
    lengths = [length for (length,) in draft_lengths(of)]
    rounds._graphs_captured = True
    captured = rounds._capture_descs[FULL]
    assert len(set(captured)) == len(captured)
    assert [one.num_reqs for one in captured] == sorted(
        (one.num_reqs for one in captured), reverse=True
    )
    taken = set()
    for requests in range(1, SEQS + 1):
        graph = rounds.of(requests, lengths[requests])
        if WIDTH * requests > of.compilation_config.max_cudagraph_capture_size:
            assert graph is None
            continue
        assert graph in captured
        assert graph.num_reqs >= requests
        assert graph.drafts == lengths[requests]
        taken.add(graph)
    assert taken == set(captured), "none is captured that no batch takes"
    assert rounds.of(3, 31) is None
    assert of.speculative_config.num_speculative_tokens_per_batch_size == table_of_setting(
        drafts, SEQS
    )


def test_an_engine_that_chooses_its_drafts_has_whole_graphs_for_each_choice() -> None:
    """Of every batch size up to vLLM's largest graph, whatever is chosen after startup."""
    of = config("auto")
    manager = senior_graphs(of)
    rounds = RoundGraphs(of, CPU, CUDAGraphMode.FULL_DECODE_ONLY, WIDTH, draft_lengths(of))
    rounds._graphs_captured = True
    largest = of.compilation_config.max_cudagraph_capture_size
    for requests in range(1, SEQS + 1):
        for drafts in CANDIDATES:
            tokens = requests * (drafts + 1)
            if tokens <= largest - 9:  # vLLM rounds sizes up to whole requests
                graph = manager.dispatch(requests, tokens, drafts + 1, 0)
                assert (graph.cg_mode, graph.uniform_token_count) == (FULL, drafts + 1)
            if WIDTH * requests <= largest:
                graph = rounds.of(requests, drafts)
                assert graph is not None
                assert graph.drafts == drafts
