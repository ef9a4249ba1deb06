"""Convolutions that a CPU has packed: plain while weights are loaded, packed again afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from refused import refused
from torch import nn

from tandem_plugin.engine.patches import cpu_weights


class MambaMixer2(nn.Module):
    """As vLLM's: it computes with a view of the convolution's first plain weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1d = convolution()
        self.register_buffer("conv_weights", self.conv1d.weight.data.squeeze(1), persistent=False)


class DeltaNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1d = convolution()


def convolution() -> Any:
    layer: Any = nn.Module()
    layer.weight = nn.Parameter(torch.arange(8.0).view(2, 1, 4), requires_grad=False)
    return layer


def pack(layer: Any, remove_weight: bool = False) -> None:
    """As vLLM packs, here in reverse order."""
    assert layer.weight.dim() == 3, "packed twice"
    layer._cpu_unpacked_conv_weight = layer.weight.data.squeeze(1).clone()
    layer.weight.data = layer._cpu_unpacked_conv_weight.flip(-1)


@pytest.fixture(autouse=True)
def _packing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_weights, "_pack_linear", pack)


def test_new_weights_reach_the_packed_copy_and_what_mamba_computes_with() -> None:
    model = nn.ModuleDict({"mamba": MambaMixer2(), "delta": DeltaNet(), "linear": nn.Linear(2, 2)})
    mixers: list[Any] = [model["mamba"], model["delta"]]
    for mixer in mixers:
        pack(mixer.conv1d)
    for factor in (10.0, 20.0):
        with cpu_weights.plain_convolutions(model):
            for mixer in mixers:
                mixer.conv1d.weight.data.copy_(factor * torch.arange(8.0).view(2, 1, 4))
        plain = factor * torch.arange(8.0).view(2, 4)
        for mixer in mixers:
            assert torch.equal(mixer.conv1d.weight, plain.flip(-1))
        assert torch.equal(mixers[0].conv_weights, plain)


def test_layers_that_nothing_packed_are_left_alone() -> None:
    model = nn.ModuleDict({"mamba": MambaMixer2(), "linear": nn.Linear(2, 2)})
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with cpu_weights.plain_convolutions(model):
        pass
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize(("kind", "is_refused"), [(MambaMixer2, True), (DeltaNet, False)])
def test_reload_in_place_is_refused_for_mamba_2_alone(kind: type[Any], is_refused: bool) -> None:
    model = nn.ModuleDict({"layer": kind()})
    layer: Any = model["layer"].conv1d
    pack(layer)
    layer.weight = nn.Parameter(torch.empty(2, 1, 4, device="meta"), requires_grad=False)
    if is_refused:
        with refused("hybrid-reload-on-cpu", name="layer"), cpu_weights.plain_convolutions(model):
            pass
    else:
        with cpu_weights.plain_convolutions(model):
            pass
        assert layer.weight.is_meta, "vLLM packs it when it has loaded it"


def test_packed_convolution_is_not_packed_again_when_weights_are_processed() -> None:
    from types import ModuleType

    utils: Any = ModuleType("utils")
    packed: list[Any] = []
    utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: packed.append(layer)
    cpu_weights._keep_linear_weights(utils)
    layer, linear = convolution(), nn.Linear(2, 2)
    for one in (layer, linear):
        utils.dispatch_cpu_unquantized_gemm(one, remove_weight=True)
    assert packed == [layer, linear]
    pack(layer)
    for one in (layer, linear):
        utils.dispatch_cpu_unquantized_gemm(one, remove_weight=True)
    assert packed == [layer, linear, linear]
