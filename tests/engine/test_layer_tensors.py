"""vLLM's own sleep and wake-up at level 2, over an allocator that really discards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from tandem_plugin.engine import senior
from tandem_plugin.engine.layer_tensors import kept_tensors, tensors_of
from tandem_plugin.engine.patches.worker import prepare_sleep
from tandem_plugin.engine.speculative import draft_model
from tandem_plugin.engine.speculative.draft_model import TandemJunior

worker_module = pytest.importorskip("vllm.v1.worker.gpu_worker")


class Kernel:
    """What a layer works out of its weights and keeps, as vLLM's attention backends do."""

    __module__ = "vllm.v1.attention.backends.a_test"

    def __init__(self, layer: nn.Module, foreign: nn.Module) -> None:
        self.absorbed = torch.randn(3, 4)
        self.layer, self.foreign, self.itself = layer, foreign, self
        self.config = SimpleNamespace(table=torch.randn(2))


class Model(nn.Module):
    """Weights, a buffer, and tensors that are neither, as a quantised layer has some."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(5, 3), requires_grad=False)
        self.register_buffer("cos_sin_cache", torch.randn(7))
        self.W_UV = self.weight.data.T[1:3]  # a view, as of an unquantised layer
        self.W_UK_T = torch.randn(2, 2, dtype=torch.bfloat16)
        self.workspaces = {"locks": [torch.ones(4, dtype=torch.int32)], "none": None}
        object.__setattr__(self, "foreign", nn.Linear(2, 2))
        self.impl = Kernel(self, self.foreign)


class Composite(Model):
    """What of the composite model a sleep meets."""

    _senior = Model
    named_buffers = senior._named_buffers

    def __init__(self, junior: nn.Module) -> None:
        super().__init__(seed=0)
        object.__setattr__(self, "junior", junior)
        self.tandem_junior_tensors = kept_tensors(junior)


class Discarding:
    """The worker's sleep backend: what was allocated for weights is overwritten, all of it."""

    def __init__(self, *models: nn.Module) -> None:
        self._models = models

    def suspend(self, level: int = 1) -> None:
        for tensor in (tensor for model in self._models for tensor in tensors_of(model)):
            tensor.untyped_storage().fill_(0xFF)

    def resume(self, tags: list[str] | None = None) -> None:
        """The memory is there again, with whatever is in it."""


@pytest.fixture(autouse=True)
def _device() -> Any:
    with mock.patch.multiple(
        torch.accelerator, synchronize=lambda: None, get_memory_info=lambda: (0, 0)
    ):
        yield


def worker_of(model: nn.Module, draft: nn.Module | None, *models: nn.Module) -> Any:
    """vLLM's worker, with no more than a sleep needs."""
    prepare_sleep()
    worker = object.__new__(worker_module.Worker)
    worker.model_runner = SimpleNamespace(
        model=model, get_draft_model=lambda: draft, post_kv_cache_wake_up=lambda: None
    )
    worker.model_config = SimpleNamespace(sleep_preserve_parameter_names=None)
    worker.vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(enable_nccl_comm_suspend=False)
    )
    worker._sleep_saved_buffers, worker._sleep_saved_draft_buffers = {}, {}
    worker._sleep_saved_parameters = {}
    worker._sleep_mode_backend = Discarding(*models)
    worker.synchronize_device = lambda: None
    return worker


def lockstep(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, nn.Module, nn.Module]:
    junior = Model(seed=1)
    model = Composite(junior)
    return worker_of(model, None, model, junior), model, junior


def speculative(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, nn.Module, nn.Module]:
    inner = Model(seed=1)
    inner.config = SimpleNamespace(vocab_size=9)
    monkeypatch.setattr(draft_model, "load_junior", lambda config: inner)
    target = SimpleNamespace(get_vocab_size=lambda: 9)
    config = SimpleNamespace(
        compilation_config=object(), speculative_config=SimpleNamespace(target_model_config=target)
    )
    senior, draft = Model(seed=0), TandemJunior(vllm_config=config)
    return worker_of(senior, draft, senior, inner), senior, inner


def bits(model: nn.Module) -> list[bytes]:
    return [
        tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()
        for tensor in tensors_of(model)
    ]


def test_every_tensor_of_a_layer_is_found_once_and_none_of_other_models() -> None:
    model = Model(seed=1)
    kept = kept_tensors(model)
    places = [tensor.untyped_storage().data_ptr() for tensor in kept.values()]
    own = (
        model.weight, model.cos_sin_cache, model.W_UK_T, model.impl.absorbed,
        model.workspaces["locks"][0],
    )  # fmt: skip
    assert sorted(places) == sorted(tensor.untyped_storage().data_ptr() for tensor in own)
    assert kept["weight"] is model.weight
    assert kept["cos_sin_cache"] is model.cos_sin_cache


@pytest.mark.parametrize("mode", [lockstep, speculative])
@pytest.mark.parametrize("tags", [None, ["weights"]])
def test_rounds_of_sleep_and_sync_keep_every_bit_of_the_junior(
    mode: Any, tags: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, senior, junior = mode(monkeypatch)
    before, cached = bits(junior), senior.cos_sin_cache.clone()
    for sync in range(3):
        worker.sleep(level=2)
        assert bits(junior) != before
        if tags is not None:
            worker.wake_up(["kv_cache"])
            assert bits(junior) != before, "its memory is not there yet"
        worker.wake_up(tags)
        assert bits(junior) == before
        assert torch.equal(senior.cos_sin_cache, cached)
        assert senior.weight.isnan().all()
        senior.weight.data.fill_(sync)
        assert bits(junior) == before


@pytest.mark.parametrize("level", [1, 2])
def test_what_is_to_be_measured_is_measured_while_the_weights_are_there(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, model, junior = lockstep(monkeypatch)
    before, found = bits(model) + bits(junior), []
    measures = SimpleNamespace(finish=lambda: found.append(bits(model) + bits(junior)))
    object.__setattr__(model, "tandem_measures", measures)
    worker.sleep(level)
    assert found == [before]
    worker.wake_up()
    assert len(found) == 1
