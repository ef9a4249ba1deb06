"""Functions that run inside the engine's worker process."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def digest(tensors: Any) -> str:
    """A hash of named tensors, bit by bit."""
    hasher = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        hasher.update(name.encode())
        hasher.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


def junior_digest(worker: Any) -> str:
    return digest(worker.model_runner.model.junior.named_parameters())


def senior_digest(worker: Any) -> str:
    return digest(worker.model_runner.model.named_parameters())


def rank(worker: Any) -> int:
    return int(worker.rank)


def parameter_names(worker: Any) -> list[str]:
    return [name for name, _ in worker.model_runner.model.named_parameters()]


def buffer_names(worker: Any) -> list[str]:
    return [name for name, _ in worker.model_runner.model.named_buffers()]


def buffers_hold_the_juniors_storage(worker: Any) -> bool:
    model = worker.model_runner.model
    buffers = dict(model.named_buffers())
    return all(
        buffers["tandem_junior." + name].data_ptr() == parameter.data_ptr()
        for name, parameter in model.junior.named_parameters()
    )


def sync(worker: Any, checkpoint: str, bucket: int) -> int:
    """A weight sync as trainers do it: plain names, in buckets, then processing once."""
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    model = worker.model_runner.model
    weights = list(load_file(Path(checkpoint) / "model.safetensors").items())
    for start in range(0, len(weights), bucket):
        model.load_weights(weights[start : start + bucket])
    process_weights_after_loading(model, worker.model_config, worker.device)
    return len(weights)


def reload(worker: Any, checkpoint: str) -> None:
    """vLLM's own reloading in place, from tensors that a trainer hands over."""
    weights = load_file(Path(checkpoint) / "model.safetensors")
    worker.reload_weights(weights_iterator=iter(weights.items()))
