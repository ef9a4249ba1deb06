"""vLLM's own sleep in the worker of an engine on a CPU, with an allocator that really discards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from support.worker import digest, holder


class Discarding:
    """What vLLM's worker takes for its sleep backend: a sleep overwrites every weight.

    As the allocator of a GPU does, whatever name or attribute a tensor has: parameters, buffers and
    plain tensors that were there when the weights were loaded.
    """

    def __init__(self, *models: Any) -> None:
        self._storages = [t.untyped_storage() for model in models for t in _weights(model)]
        self.asleep: list[str] = []

    def suspend(self, level: int = 1) -> None:
        assert level == 2
        for storage in self._storages:
            storage.fill_(0xFF)  # not a number, in every type of floats
        self.asleep = ["weights", "kv_cache"]

    def resume(self, tags: list[str] | None = None) -> None:
        self.asleep = [tag for tag in self.asleep if tags is not None and tag not in tags]


def prepare(worker: Any) -> None:
    """Replace the sleep backend; give the junior a plain tensor, as a quantised layer has some."""
    worker, junior = _inner(worker), _junior(worker)
    if worker._sleep_mode_backend is None:
        layer = next(m for m in junior.modules() if hasattr(m, "qkv_proj"))
        layer.W_UK_T = torch.arange(6, dtype=torch.bfloat16)
        holder(worker).tandem_junior_tensors["W_UK_T"] = layer.W_UK_T
        worker._sleep_mode_backend = Discarding(worker.model_runner.model, junior)


def sleep(worker: Any) -> None:
    """Level 2."""
    from vllm.v1.worker.gpu_worker import Worker

    worker = _inner(worker)
    with mock.patch.multiple(
        torch.accelerator, synchronize=lambda: None, get_memory_info=lambda: (0, 0)
    ):
        Worker.sleep(worker, level=2)


def wake_up(worker: Any, tags: list[str] | None) -> list[str]:
    """Returns what is still asleep."""
    from vllm.v1.worker.gpu_worker import Worker

    worker = _inner(worker)
    with mock.patch.object(worker, "synchronize_device", create=True):
        Worker.wake_up(worker, tags)
    asleep: list[str] = worker._sleep_mode_backend.asleep
    return asleep


def junior_bits(worker: Any) -> str:
    """A hash of every tensor of the junior."""
    weights = list(_weights(_junior(worker)))
    assert any(tensor.shape == (6,) for tensor in weights)
    return digest((str(place), tensor.reshape(-1)) for place, tensor in enumerate(weights))


def pack_the_junior_anew(worker: Any) -> None:
    """vLLM's CPU build computes with packed copies, which no allocator discards."""
    from tandem_plugin.engine.patches.cpu_weights import pack_cpu_weights_anew

    pack_cpu_weights_anew(_junior(worker), None)


def _inner(worker: Any) -> Any:
    """vLLM's worker itself, in whatever wraps it."""
    return getattr(worker, "worker", worker)


def _junior(worker: Any) -> Any:
    return holder(worker).junior


def _weights(model: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a model but keys and values, which its layers were given after loading."""
    from tandem_plugin.engine.layer_tensors import tensors_of

    layers = [module for module in model.modules() if hasattr(module, "kv_cache")]
    kept = [layer.kv_cache for layer in layers]  # of a recurrent state, several tensors
    caches = {
        cache.untyped_storage().data_ptr()
        for one in kept
        for cache in (one if isinstance(one, tuple | list) else [one])
    }
    for tensor in tensors_of(model):
        if tensor.untyped_storage().data_ptr() not in caches and tensor.numel():
            yield tensor
