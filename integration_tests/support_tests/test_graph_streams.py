"""The junior's stream on the stand-in for CUDA graphs: order, buffers and the pool's memory.

A replay runs what streams hold in an order that only their waits determine, another one each time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from support.graphs import streams as stand_in
from support.graphs.pool import Pool
from support.graphs.recording import Capture, Graph

from tandem_plugin.engine import streams
from tandem_plugin.errors import EngineError

REPLAYS, TOKENS = 40, 5
ONE = object()


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """That of a step: its attention metadata, by layer, each model's own."""
    step = SimpleNamespace(attn_metadata={"model.0": object(), "junior.model.0": object()})
    monkeypatch.setattr("vllm.forward_context.get_forward_context", lambda: step)
    monkeypatch.setattr(torch.cuda, "Stream", stand_in.Stream)
    return step


def layers(width: int, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A model whose intermediate tensors are freed as it goes."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(width, width, generator=generator) / width**0.5 for _ in range(6)]

    def run(ids: torch.Tensor) -> torch.Tensor:
        hidden = (ids[:, None] * torch.ones(width)).sin()
        for weight in weights:
            hidden = hidden + (hidden @ weight).tanh()
        return hidden

    return run


def captured(
    forward: Callable[[torch.Tensor], torch.Tensor], pool: Pool
) -> tuple[Graph, torch.Tensor, torch.Tensor]:
    """A graph of a step, its input and its output."""
    graph, ids = Graph(), torch.zeros(TOKENS)
    with torch.no_grad(), Capture(graph, pool):
        hidden = forward(ids)
    return graph, ids, hidden


run_senior, run_junior = layers(16, 1), layers(24, 2)


def both(ids: torch.Tensor, beside: streams.JuniorStream) -> torch.Tensor:
    return beside.both(lambda: run_senior(ids), lambda: run_junior(ids))


def wrong(graph: Graph, ids: torch.Tensor, hidden: torch.Tensor) -> int:
    """How many replays gave another result."""
    count = 0
    for number in range(REPLAYS):
        ids.copy_(torch.arange(TOKENS) + number)
        graph.replay()
        count += not torch.equal(hidden, torch.cat([run_senior(ids), run_junior(ids)], -1))
    return count


def test_replays_in_every_order_give_what_both_models_compute() -> None:
    """Also where several graphs share the pool."""
    beside, pool = streams.JuniorStream(torch.device("cpu")), Pool()
    graphs = [captured(lambda ids: both(ids, beside), pool) for _ in range(3)]
    assert [wrong(*one) for one in graphs] == [0, 0, 0]


def test_memory_that_one_model_freed_must_not_become_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a pool that did so, replays would be wrong: the test above can fail."""
    monkeypatch.setattr("support.graphs.pool.current_stream", lambda: None)
    beside = streams.JuniorStream(torch.device("cpu"))
    assert wrong(*captured(lambda ids: both(ids, beside), Pool())) > REPLAYS // 4


def test_passes_that_do_not_join_are_no_graph() -> None:
    class Unjoined(streams.JuniorStream):
        def both(self, senior: streams.Pass, junior: streams.Pass) -> torch.Tensor:
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                of_junior = junior()
            return torch.cat([senior(), of_junior], -1)

    with pytest.raises(stand_in.StreamError, match="does not wait for"):
        captured(lambda ids: both(ids, Unjoined(torch.device("cpu"))), Pool())


def test_a_stream_that_does_not_fork_is_no_part_of_the_graph() -> None:
    class Unforked(streams.JuniorStream):
        def both(self, senior: streams.Pass, junior: streams.Pass) -> torch.Tensor:
            with torch.cuda.stream(self._side):
                return junior()

    with pytest.raises(stand_in.StreamError, match="a capture that it does not wait for"):
        captured(lambda ids: both(ids, Unforked(torch.device("cpu"))), Pool())


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        ({"model.0": ONE, "junior.model.0": ONE}, "an attention group of both models"),
        ({"model.0": ONE}, "an attention group of both models"),
        ([{"model.0": ONE}, {"junior.model.0": object()}], "attention that is planned in parts"),
    ],
)
def test_metadata_that_both_models_may_share_stops_the_capture(
    context: SimpleNamespace, shown: object, what: str
) -> None:
    context.attn_metadata = shown
    beside = streams.JuniorStream(torch.device("cpu"))
    with pytest.raises(EngineError, match=rf"{what}.*\[junior-stream-unsupported\]"):
        captured(lambda ids: both(ids, beside), Pool())
