"""The stand-in for CUDA graphs: what it keeps of the real ones' contract, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.graphs.frozen import FrozenMetadata, MovedError
from support.graphs.pool import Pool
from support.graphs.recording import Capture, Graph
from support.graphs.waiting import HostWaitsError, let_wait, watch, watched

from tandem_plugin.engine import senior

ROWS, WIDTH = 6, 5


@pytest.fixture
def pool() -> Pool:
    return Pool()


def captured(
    pool: Pool, function: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> tuple[Graph, torch.Tensor]:
    """A graph, and its output without holding it: as the last piece of vLLM's piecewise graphs."""
    graph = Graph()
    with Capture(graph, pool):
        output = pool.weak(function(*inputs))
    return graph, output


def test_a_replay_computes_over_the_memory_of_its_capture(pool: Pool) -> None:
    inputs, scale = torch.ones(ROWS, WIDTH), [2.0]

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.view(-1) * scale[0]
        y[0] += 1
        return torch.nn.functional.linear(y.view(ROWS, WIDTH), weight) + torch.arange(3)

    weight = torch.eye(3, WIDTH)
    graph, output = captured(pool, function, inputs)
    address = output.data_ptr()
    scale[0] = 100.0  # known to the host alone
    inputs[:] = torch.rand(ROWS, WIDTH)
    weight.mul_(3)
    graph.replay()
    expected = 2 * inputs
    expected[0, 0] += 1
    torch.testing.assert_close(output, expected[:, :3] * 3 + torch.arange(3))
    assert output.data_ptr() == address


def test_what_works_on_memory_by_itself_is_run_again_over_that_of_the_capture(pool: Pool) -> None:
    """As Triton's kernels do, which PyTorch does not dispatch."""

    def kernel(x: torch.Tensor, y: torch.Tensor, by: float) -> None:
        y.copy_(x * by)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        assert Capture.current is not None
        Capture.current.run_and_add(kernel, x + 1, y, by=3.0)
        return y * 2

    inputs = torch.ones(ROWS, WIDTH)
    graph, output = captured(pool, function, inputs)
    torch.testing.assert_close(output, torch.full_like(output, 12.0))
    inputs[:] = torch.rand(ROWS, WIDTH)
    graph.replay()
    torch.testing.assert_close(output, (inputs + 1) * 6)
    assert Capture.current is None


def test_what_nobody_holds_is_given_to_the_next_graph_of_the_pool(pool: Pool) -> None:
    x = torch.rand(ROWS, WIDTH)
    _, first = captured(pool, torch.sin, x)
    _, second = captured(pool, torch.cos, x)
    assert second.data_ptr() == first.data_ptr()
    _, other = captured(Pool(), torch.cos, x)
    assert other.data_ptr() != first.data_ptr()


def test_what_is_held_at_a_capture_lives_through_that_graph(pool: Pool) -> None:
    x = torch.rand(ROWS, WIDTH)
    graph = Graph()
    with Capture(graph, pool):
        held = torch.sin(x)
    following, output = captured(pool, lambda: held + 1)
    x[:] = torch.rand(ROWS, WIDTH)
    graph.replay()
    following.replay()
    torch.testing.assert_close(output, x.sin() + 1)


def test_memory_that_was_free_at_a_graphs_capture_is_spoilt_when_it_runs(pool: Pool) -> None:
    x, small = torch.rand(ROWS, WIDTH), torch.rand(1)
    first, output = captured(pool, torch.sin, x)
    second, _ = captured(pool, lambda: torch.zeros(4096))
    captured(pool, torch.cos, small)
    first.replay()
    torch.testing.assert_close(output, x.sin())
    second.replay()
    assert not torch.equal(output, x.sin())
    third, _ = captured(pool, torch.cos, small)
    first.replay()
    third.replay()
    assert output[1:].isnan().all()


def test_a_replay_over_a_tensor_that_was_replaced_is_noticed(pool: Pool) -> None:
    """On a GPU it would read memory that was freed."""
    held = {"scale": torch.full((ROWS, WIDTH), 2.0)}
    inputs = torch.rand(ROWS, WIDTH)
    graph, output = captured(pool, lambda x: x * held["scale"], inputs)
    held["scale"].fill_(3)
    graph.replay()
    torch.testing.assert_close(output, inputs * 3)
    held["scale"] = torch.full((ROWS, WIDTH), 5.0)
    with pytest.raises(MovedError, match="1 tensors"):
        graph.replay()


def metadata(seq_lens: torch.Tensor, longest: int) -> dict[str, Any]:
    """As a backend of attention has it."""
    scheduled = seq_lens.clone()  # of a CPU alone
    one = SimpleNamespace(seq_lens=seq_lens, max_seq_len=longest, scheduler_metadata=scheduled)
    return {"junior.model.layers.0.attn": one}


def test_metadata_that_a_graph_would_not_see_is_noticed() -> None:
    """A graph reads the lengths where they lay at its capture, as long as it was launched for."""
    buffer = torch.arange(8)
    frozen = FrozenMetadata(metadata(buffer[:4], 64))
    buffer += 1
    frozen.check(metadata(buffer[:4], 64))
    frozen.check(metadata(buffer[:4], 9))
    with pytest.raises(MovedError, match="seq_lens"):
        frozen.check(metadata(buffer[:4].clone(), 64))
    with pytest.raises(MovedError, match="larger"):
        frozen.check(metadata(buffer[:4], 65))


Waiting = Callable[[torch.Tensor], Any]
WAITING: dict[str, Waiting] = {
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "numpy": lambda x: x.numpy(),
    "bool": lambda x: bool(x.any()),
    "if": lambda x: 1 if (x > 2).all() else 0,
    "int": lambda x: int(x[0]),
    "index": lambda x: range(x.to(torch.int64)[0]),
    "contains": lambda x: 3.0 in x,
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "several through a mask": lambda x: x.__setitem__(x > 0, torch.ones(ROWS)),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.ones(ROWS, dtype=torch.int64)),
}
NOT_WAITING: dict[str, Waiting] = {
    "one value through a mask": lambda x: x.__setitem__(x > 0, 0.0),
    "choice": lambda x: torch.where(x > 0, x, -x),
    "indices": lambda x: x[torch.tensor([2, 1])],
    "to the same type": lambda x: x.to(torch.float64),
    "repeat_interleave": lambda x: x.repeat_interleave(2),
}


@pytest.mark.parametrize("waiting", WAITING.values(), ids=WAITING)
def test_what_lets_the_host_wait_is_refused_in_a_captured_region(
    pool: Pool, waiting: Waiting
) -> None:
    x = torch.arange(1.0, ROWS + 1)
    waiting(x.clone())
    with pytest.raises(HostWaitsError, match="in a captured region"), Capture(Graph(), pool):
        waiting(x + 0)
    with pytest.raises(HostWaitsError, match="in a step"), watched("a step"):
        waiting(x)
    waiting(x)


@pytest.mark.parametrize("function", NOT_WAITING.values(), ids=NOT_WAITING)
def test_what_does_not_wait_is_not_refused(pool: Pool, function: Waiting) -> None:
    with Capture(Graph(), pool):
        function(torch.arange(1.0, ROWS + 1))


def test_functions_are_watched_but_for_what_is_excepted_within() -> None:
    class Step:
        def outer(self, x: torch.Tensor) -> float:
            return self.inner(x) + x.item()

        def middle(self, x: torch.Tensor) -> float:
            return self.inner(x)

        def inner(self, x: torch.Tensor) -> float:
            return x.item()

    for name in ("outer", "middle"):
        watch(Step, name)
    let_wait(Step, "inner")
    assert Step().middle(torch.tensor(2.0)) == 2.0
    with pytest.raises(HostWaitsError, match=r"Step\.outer"):
        Step().outer(torch.tensor(2.0))


class Piece:
    """A model of one piece: captured at first, replayed from then on."""

    def __init__(self, pool: Pool, weight: torch.Tensor) -> None:
        self._pool, self._weight = pool, weight
        self._graph: Graph | None = None

    def __call__(self, input_ids: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        if self._graph is None:
            self._graph, self._output = captured(self._pool, self.plain, input_ids)
        else:
            self._graph.replay()
        return self._output

    def plain(self, input_ids: torch.Tensor) -> torch.Tensor:
        return input_ids[:, None] * self._weight


class Senior:
    """What the composite's forward pass needs of the model that it belongs to."""

    def __init__(self, senior: Piece, junior: Piece, junior_width: int) -> None:
        self.junior, self.tandem_junior_width = junior, junior_width
        self._senior = type("Class", (), {"forward": staticmethod(lambda _, *a: senior(*a))})


def both_then_joined(model: Any, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """A forward pass that reads the senior's hidden states after the junior ran."""
    senior = model._senior.forward(model, input_ids, positions)
    return torch.cat([senior, model.junior(input_ids, positions)], -1)


@pytest.mark.parametrize("junior_width", [WIDTH, WIDTH + 300])
@pytest.mark.parametrize(("forward", "right"), [(senior._forward, True), (both_then_joined, False)])
def test_hidden_states_that_are_read_after_the_other_models_graphs_are_spoilt(
    pool: Pool, forward: Any, right: bool, junior_width: int
) -> None:
    senior, junior = Piece(pool, torch.rand(WIDTH)), Piece(pool, torch.rand(junior_width))
    model, ids = Senior(senior, junior, junior_width), torch.arange(ROWS)
    for step in range(3):
        ids.add_(step)
        hidden = forward(model, ids, ids)
        expected = torch.cat([senior.plain(ids), junior.plain(ids)], -1)
        assert torch.equal(hidden, expected) == right
