"""A junior that is the base of its senior's adapters: which layers it has, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refused import refused
from torch import nn

from tandem_plugin.engine import base_junior
from tandem_plugin.engine.base_junior import (
    _join,
    check_base,
    check_may_load,
    check_may_sleep,
    is_shared,
    join_base,
)


class Attention(nn.Module):
    """A layer with a cache of its own, and scales."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.scale = torch.ones(1)
        self.register_buffer("k_scale", torch.ones(()))
        self.cache: list[float] = []


class Block(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.randn(2))
        self.project = nn.Linear(3, 3)
        self.attention = Attention(name)
        self.missing = None


class Model(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.blocks = nn.ModuleList([Block(f"{name}.{i}") for i in range(2)])
        self.head = self.embed
        self.of_step = [torch.zeros(4, 3) for _ in range(2)]


@pytest.fixture
def models() -> tuple[Model, Model]:
    senior = Model("senior")
    with torch.device("meta"):
        junior = Model("junior")
    _join(junior, senior, Attention)
    return senior, junior


def test_layers_are_the_seniors_and_attention_is_the_juniors(models: tuple[Model, Model]) -> None:
    senior, junior = models
    assert junior.embed is senior.embed is junior.head
    for ours, theirs in zip(junior.blocks, senior.blocks, strict=True):
        assert ours is not theirs
        assert ours.project is theirs.project
        assert ours.sink is theirs.sink
        assert ours.attention is not theirs.attention
        assert ours.attention.name == theirs.attention.name.replace("senior", "junior")
        assert ours.attention.cache is not theirs.attention.cache
        assert ours.attention.k_scale is theirs.attention.k_scale
        assert ours.attention.scale is theirs.attention.scale
    assert not any(one.is_meta for one in [*junior.parameters(), *junior.buffers()])


def test_what_a_model_writes_at_every_step_is_its_own(models: tuple[Model, Model]) -> None:
    """As Qwen3-VL's buffers of an image's deeper levels, in a list of tensors."""
    senior, junior = models
    for ours, theirs in zip(junior.of_step, senior.of_step, strict=True):
        assert torch.equal(ours, theirs)
        theirs.fill_(1)
        assert not ours.any()


def test_what_is_put_around_a_layer_of_the_seniors_is_the_seniors_alone(
    models: tuple[Model, Model],
) -> None:
    """As adapters are: by another module in the layer's place, which holds it."""
    senior, junior = models
    base = senior.blocks[0].project
    senior.blocks[0].project = nn.Sequential(base, nn.Linear(3, 3))
    assert junior.blocks[0].project is base


def test_weights_that_are_processed_after_loading_are_the_juniors_too(
    models: tuple[Model, Model],
) -> None:
    """A layer's own, and those that stand beside layers: vLLM puts other tensors in their place."""
    senior, junior = models
    for module in (senior.blocks[1], senior.blocks[1].project):
        for name, value in list(module._parameters.items()):
            delattr(module, name)
            module.register_parameter(name, nn.Parameter(value * 2, requires_grad=False))
    assert junior.blocks[1].sink is senior.blocks[1].sink
    assert junior.blocks[1].project.weight is senior.blocks[1].project.weight


def engine(junior: str = "/base", **changes: Any) -> Any:
    config = {
        "lora_config": SimpleNamespace(),
        "quant_config": None,
        "load_config": SimpleNamespace(load_format="auto"),
        "cache_config": SimpleNamespace(cache_dtype="auto"),
        "weight_transfer_config": None,
    }
    return SimpleNamespace(
        additional_config={"tandem": {"junior": junior, "junior_quantization": None}},
        model_config=SimpleNamespace(model="/base"),
        **(config | changes),
    )


def model(experts: int = 0, latent: bool = False) -> Any:
    return SimpleNamespace(get_num_experts=lambda: experts, use_mla=latent)


def test_base_is_shared_with_adapters_and_the_seniors_checkpoint_alone() -> None:
    assert is_shared(engine())
    assert not is_shared(engine("/other"))
    assert not is_shared(engine(lora_config=None))


@pytest.mark.parametrize(
    ("junior", "changes", "code"),
    [
        (model(experts=8), {}, "lora-class-not-shareable"),
        (model(latent=True), {}, "lora-class-not-shareable"),
        (model(), {"quant_config": object()}, "lora-class-not-shareable"),
        (model(), {"load_config": SimpleNamespace(load_format="dummy")}, "lora-dummy-weights"),
        (model(), {"cache_config": SimpleNamespace(cache_dtype="fp8")}, "lora-cache-scales"),
        (model(), {"weight_transfer_config": object()}, "lora-full-weight-transfer"),
    ],
)
def test_what_would_make_the_base_another_junior_is_refused(
    junior: Any, changes: dict[str, Any], code: str
) -> None:
    pytest.importorskip("vllm", reason="whose version is asked for")
    check_base(engine(), model())
    check_base(engine("/other", **changes), junior)
    with refused(code):
        check_base(engine(**changes), junior)


def test_older_engines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = pytest.importorskip("vllm", reason="whose version is asked for")
    monkeypatch.setattr(vllm, "__version__", "0.28.1")
    with refused("lora-vllm-untested", version="0.28.1"):
        check_base(engine(), model())
    with refused("lora-vllm-untested"):
        check_base(engine("/other"), model())
    check_base(engine(lora_config=None), model())


def test_whole_weights_and_deep_sleeps_are_refused_once_the_base_is_in_use() -> None:
    senior = SimpleNamespace(tandem_base_is_junior=True, tandem_has_run=False)
    check_may_load(senior)
    senior.tandem_has_run = True
    with refused("lora-full-weights-sent"):
        check_may_load(senior)
    check_may_sleep(senior, 1)
    with refused("lora-sleep-discards-base"):
        check_may_sleep(senior, 2)
    for free in (SimpleNamespace(tandem_base_is_junior=False, tandem_has_run=True), object()):
        check_may_load(free)
        check_may_sleep(free, 2)


def test_a_model_whose_tensors_no_layer_holds_cannot_be_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loader = pytest.importorskip("vllm.model_executor.model_loader.utils")

    class Odd(Model):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.loose = [torch.ones(2)]

    monkeypatch.setattr(loader, "initialize_model", lambda **_: Odd("junior"))
    monkeypatch.setattr(base_junior, "junior_config", lambda config: config)
    monkeypatch.setattr(base_junior, "_join", lambda *_: None)
    with refused("base-weights-not-shareable", kind="Odd"):
        join_base(Model("senior"), SimpleNamespace(model_config=None))
