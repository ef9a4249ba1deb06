"""A frozen junior through deep sleeps: one copy on the host, every tensor back bit by bit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tandem_plugin.engine import junior_offload
from tandem_plugin.engine.junior_offload import HostCopy, tensors_of


class Kernel:
    """What a layer works out of its weights and keeps, as vLLM's attention backends do."""

    __module__ = "vllm.v1.attention.backends.a_test"

    def __init__(self, layer: nn.Module, foreign: nn.Module) -> None:
        self.absorbed = torch.randn(3, 4)
        self.layer, self.foreign, self.itself = layer, foreign, self
        self.config = SimpleNamespace(table=torch.randn(2))


class Layer(nn.Module):
    def __init__(self, foreign: nn.Module) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6), requires_grad=False)
        self.register_buffer("scale", torch.randn(3))
        self.W_UV = self.weight.data.T[1:3]  # a view, as of an unquantised layer
        self.W_UK_T = torch.randn(2, 2, dtype=torch.bfloat16)
        self.workspaces = {"locks": [torch.zeros(4, dtype=torch.int32)], "none": None}
        self.kv_cache = torch.tensor([])
        self.impl = Kernel(self, foreign)


@pytest.fixture
def model() -> nn.Module:
    foreign = nn.Linear(2, 2)
    model = nn.Sequential(Layer(foreign), Layer(foreign))
    object.__setattr__(model, "foreign", foreign)
    return model


def kept(model: Any) -> list[torch.Tensor]:
    return [
        tensor
        for layer in model
        for tensor in (
            layer.weight, layer.scale, layer.W_UV, layer.W_UK_T, layer.impl.absorbed,
            layer.workspaces["locks"][0],
        )
    ]  # fmt: skip


def bits(tensors: list[torch.Tensor]) -> list[bytes]:
    return [t.detach().contiguous().view(torch.uint8).numpy().tobytes() for t in tensors]


def discard(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.detach().untyped_storage().fill_(0xAB)


def test_every_tensor_of_a_layer_is_found_and_none_of_other_models(model: Any) -> None:
    found = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(model)}
    assert found >= {tensor.untyped_storage().data_ptr() for tensor in kept(model)}
    others = [*model.foreign.parameters(), model[0].impl.config.table]
    assert not found & {tensor.untyped_storage().data_ptr() for tensor in others}


def test_rounds_of_sleep_return_every_bit_from_one_copy(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []
    copy = HostCopy(model)
    of_storage = junior_offload._bytes_of
    monkeypatch.setattr(
        junior_offload, "_bytes_of", lambda storage: copied.append(storage) or of_storage(storage)
    )
    before = bits(kept(model))
    for sleep in range(3):
        copied.clear()
        copy.hold()
        assert bool(copied) is (sleep == 0)
        assert copy.is_held
        discard(kept(model))
        assert bits(kept(model)) != before
        copy.restore()
        assert not copy.is_held
        assert bits(kept(model)) == before


def test_what_came_after_loading_is_not_touched(model: Any) -> None:
    """Keys and values live in a pool of their own, and are bound to the layers later."""
    copy = HostCopy(model)
    model[0].kv_cache = torch.ones(8)
    copy.hold()
    model[0].kv_cache.fill_(2)
    copy.restore()
    assert model[0].kv_cache.tolist() == [2] * 8
