"""Which engines may run the junior's pass beside the senior's, and which may not."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refused import refused

from tandem_plugin.engine import streams


def model(**changes: Any) -> Any:
    experts = changes.pop("experts", 0)
    plain = {"use_mla": False, "is_hybrid": False, "is_attention_free": False, "quantization": None}
    return SimpleNamespace(get_num_experts=lambda: experts, **(plain | changes))


def engine(senior: Any = None, *, asked: bool = True, **changes: Any) -> Any:
    config = {
        "parallel_config": SimpleNamespace(tensor_parallel_size=1),
        "lora_config": None,
        "offload_config": SimpleNamespace(prefetch=SimpleNamespace(offload_group_size=0)),
    }
    return SimpleNamespace(
        additional_config={"tandem": {"junior_stream": asked}},
        model_config=senior or model(),
        **(config | changes),
    )


SHARING: list[tuple[str, dict[str, Any]]] = [
    (
        "tensor_parallel_size=2",
        {"parallel_config": SimpleNamespace(tensor_parallel_size=2)},
    ),
    (
        "dual-batch overlap",
        {"parallel_config": SimpleNamespace(tensor_parallel_size=1, use_ubatching=True)},
    ),
    ("adapters (LoRA)", {"lora_config": object()}),
    (
        "prefetched weights",
        {"offload_config": SimpleNamespace(prefetch=SimpleNamespace(offload_group_size=4))},
    ),
]
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("a mixture of experts", {"experts": 8}),
    ("latent attention", {"use_mla": True}),
    ("linear attention", {"is_hybrid": True}),
    ("linear attention", {"is_attention_free": True}),
    ("a quantised model", {"quantization": "fp8"}),
]


@pytest.mark.parametrize(("what", "changes"), SHARING)
def test_engine_whose_passes_share_memory_is_refused(what: str, changes: dict[str, Any]) -> None:
    streams.check_junior_stream(engine(), model())
    streams.check_junior_stream(engine(asked=False, **changes), model())
    with refused("junior-stream-unsupported", what=what):
        streams.check_junior_stream(engine(**changes), model())


@pytest.mark.parametrize(("what", "changes"), KINDS)
def test_either_model_of_a_kind_that_shares_memory_is_refused(
    what: str, changes: dict[str, Any]
) -> None:
    for one, other in ((model(**changes), model()), (model(), model(**changes))):
        with refused("junior-stream-unsupported", what=what):
            streams.check_junior_stream(engine(one), other)


def test_an_old_vllm_that_prefetches_no_weights_is_none_of_these() -> None:
    found = engine()
    del found.offload_config
    streams.check_junior_stream(found, model())


def test_juniors_attention_backends_are_told_apart_by_name() -> None:
    class Backend:
        @classmethod
        def full_cls_name(cls) -> tuple[str, str]:
            return cls.__module__, cls.__qualname__

    own = streams._separate(Backend)
    assert own is streams._separate(Backend)
    assert issubclass(own, Backend)
    assert own.full_cls_name() != Backend.full_cls_name()


class Layer:
    """An attention layer of a backend of this name."""

    def __init__(self, name: str) -> None:
        self.attn_backend = type(name, (), {"get_name": staticmethod(lambda: name)})

    def get_attn_backend(self) -> Any:
        return self.attn_backend


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the streams of a device do, in order; and models that are lists of their layers."""
    events: list[str] = []

    class Stream:
        def __init__(self, name: object) -> None:
            self.name = "side" if isinstance(name, torch.device) else str(name)

        def wait_stream(self, other: Any) -> None:
            events.append(f"{self.name} waits for {other.name}")

    current = [Stream("main")]

    @contextmanager
    def on(stream: Any) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(streams, "_attention", lambda model: model)
    return events


def graphs(mode: Any, *, asked: bool = True) -> Any:
    return SimpleNamespace(
        additional_config={"tandem": {"junior_stream": asked}},
        compilation_config=SimpleNamespace(cudagraph_mode=mode),
        device_config=SimpleNamespace(device=torch.device("cpu")),
    )


FULL = SimpleNamespace(name="FULL_AND_PIECEWISE", has_full_cudagraphs=lambda: True)
PIECEWISE = SimpleNamespace(name="PIECEWISE", has_full_cudagraphs=lambda: False)


def test_stream_is_made_where_graphs_hold_whole_steps(
    joined: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    senior, junior = [Layer("FLASH_ATTN")], [Layer("TRITON_ATTN")]
    before = senior[0].attn_backend, junior[0].attn_backend
    assert streams.junior_stream(graphs(FULL, asked=False), senior, junior) is None
    assert (senior[0].attn_backend, junior[0].attn_backend) == before
    assert isinstance(streams.junior_stream(graphs(FULL), senior, junior), streams.JuniorStream)
    assert senior[0].attn_backend is before[0]
    assert junior[0].attn_backend is streams._separate(before[1])
    assert not caplog.messages


@pytest.mark.parametrize(("mode", "name"), [(None, "NONE"), (PIECEWISE, "PIECEWISE")])
def test_setting_without_an_effect_is_a_warning(
    joined: list[str], caplog: pytest.LogCaptureFixture, mode: Any, name: str
) -> None:
    with caplog.at_level(logging.WARNING, streams.__name__):
        assert streams.junior_stream(graphs(mode), [Layer("CPU_ATTN")], []) is None
    (message,) = caplog.messages
    assert "junior_stream has no effect" in message
    assert f"cudagraph_mode={name}" in message


@pytest.mark.parametrize("mode", [FULL, PIECEWISE])
def test_backend_that_is_not_on_the_list_is_refused_in_either_model(
    joined: list[str], mode: Any
) -> None:
    right, other = [Layer("FLASH_ATTN")], [Layer("FLASH_ATTN"), Layer("FLASHINFER")]
    for senior, junior in ((right, other), (other, right)):
        with refused("junior-stream-unsupported", what="the attention backend FLASHINFER"):
            streams.junior_stream(graphs(mode), senior, junior)
    assert right[0].attn_backend.__name__ == "FLASH_ATTN", "nothing was changed"


def shows(monkeypatch: pytest.MonkeyPatch, metadata: object) -> None:
    step = SimpleNamespace(attn_metadata=metadata)
    module = SimpleNamespace(get_forward_context=lambda: step)
    monkeypatch.setitem(sys.modules, "vllm.forward_context", module)


def test_passes_fork_and_join_and_the_seniors_half_comes_first(
    joined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shows(monkeypatch, {"model.0": object(), "junior.model.0": object()})

    def forward(name: str, value: float) -> torch.Tensor:
        joined.append(f"{name} on {torch.cuda.current_stream().name}")
        return torch.full((2, 3), value)

    both = streams.JuniorStream(torch.device("cpu")).both(
        lambda: forward("senior", 1.0), lambda: forward("junior", 2.0)
    )
    assert joined == [
        "side waits for main", "junior on side", "senior on main", "main waits for side",
    ]  # fmt: skip
    assert both.tolist() == [[1.0] * 3 + [2.0] * 3] * 2


ONE = object()


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"model.0": ONE, "junior.model.0": ONE}, "an attention group of both models"),
        ({"model.0": ONE, "model.1": object()}, "an attention group of both models"),
        ({"junior.model.0": ONE}, "an attention group of both models"),
        ({}, "an attention group of both models"),
        ([{"model.0": ONE}], "attention that is planned in parts of a batch"),
    ],
)
def test_metadata_that_both_passes_may_write_stops_the_step(
    joined: list[str], monkeypatch: pytest.MonkeyPatch, metadata: object, what: str
) -> None:
    shows(monkeypatch, metadata)
    stream = streams.JuniorStream(torch.device("cpu"))
    with refused("junior-stream-unsupported", what=what):
        stream.both(lambda: pytest.fail("it ran"), lambda: pytest.fail("it ran"))
    assert joined == []
