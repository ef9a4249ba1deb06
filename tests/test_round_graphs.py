"""Graphs of rounds: which are captured, and which one a round takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor, CudaGraphManager

from tandem_plugin.engine.speculative.round_graphs import RoundGraphs

WIDTH = 2
SIZES = (4, 2, 1)


def sized(requests: int) -> BatchExecutionDescriptor:
    """vLLM's description of a graph for so many requests."""
    return BatchExecutionDescriptor(
        cg_mode=CUDAGraphMode.FULL,
        num_tokens=WIDTH * requests,
        num_reqs=requests,
        uniform_token_count=WIDTH,
    )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A manager of rounds of 0, 1 and 4 drafts, and the configurations it was made of."""
    seen: list[Any] = []

    def init(self: Any, vllm_config: Any, device: Any, mode: Any, width: int) -> None:
        seen.append((vllm_config, width))
        self._capture_descs = {CUDAGraphMode.FULL: [sized(size) for size in SIZES]}

    def dispatch(self: Any, requests: int, tokens: int, uniform: int, loras: int) -> Any:
        assert (tokens, uniform, loras) == (WIDTH * requests, WIDTH, 0)
        fits = [size for size in SIZES if size >= requests]
        if fits:
            return sized(min(fits))
        return BatchExecutionDescriptor(CUDAGraphMode.NONE, tokens, requests)

    monkeypatch.setattr(CudaGraphManager, "__init__", init)
    monkeypatch.setattr(CudaGraphManager, "dispatch", dispatch)
    table = [(1, 1, 0), (2, 2, 4), (3, 3, 1)]
    speculative = SimpleNamespace(
        num_speculative_tokens=4, num_speculative_tokens_per_batch_size=table
    )
    config = SimpleNamespace(speculative_config=speculative)
    graphs: Any = RoundGraphs(config, None, CUDAGraphMode.FULL, WIDTH, (0, 4, 1))  # type: ignore[arg-type]
    return SimpleNamespace(graphs=graphs, config=config, seen=seen, table=table)


def test_every_size_is_captured_for_every_length_the_largest_first(made: Any) -> None:
    """Smaller graphs then fit into the memory of larger ones."""
    captured = made.graphs._capture_descs[CUDAGraphMode.FULL]
    assert [(one.num_reqs, one.drafts) for one in captured] == [
        (size, drafts) for size in SIZES for drafts in (4, 1, 0)
    ]


def test_a_round_takes_the_graph_of_its_size_and_length_that_was_captured(made: Any) -> None:
    captured = made.graphs._capture_descs[CUDAGraphMode.FULL]
    for drafts in (0, 1, 4):
        found = made.graphs.of(3, drafts)
        assert (found.num_reqs, found.drafts) == (4, drafts)
        assert found in captured
    assert made.graphs.of(5, 4) is None
    assert made.graphs.of(3, 2) is None


def test_vllms_manager_is_not_told_of_the_seniors_lengths(made: Any) -> None:
    """It would take rounds for steps of the senior; the engine's own configuration stays."""
    ((config, width),) = made.seen
    assert width == WIDTH
    assert config.speculative_config.num_speculative_tokens_per_batch_size is None
    assert made.config.speculative_config.num_speculative_tokens_per_batch_size is made.table
