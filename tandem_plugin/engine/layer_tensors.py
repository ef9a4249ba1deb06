"""The tensors of a frozen model, under any attribute: what a level-2 sleep must save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

_LAYERS = ("vllm.model_executor.", "vllm.v1.attention.", "vllm.attention.")
"""Packages whose objects keep a layer's tensors: kernels and attention backends."""


def kept_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every tensor of a frozen model, by name, which vLLM then saves and restores as buffers.

    Parameters and buffers keep their names. Nothing reloads the plain tensors that layers derive
    from their weights (a quantised MLA's ``W_UV``, a kernel's workspace): each of their storages is
    one tensor of bytes. Call this before KV caches are allocated.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    device = next(model.parameters()).device
    pointers = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    for tensor in tensors_of(model):
        storage = tensor.untyped_storage()
        if storage.device != device or not storage.nbytes() or storage.data_ptr() in pointers:
            continue
        pointers.add(storage.data_ptr())
        tensors[f"storage.{len(pointers)}"] = torch.empty(0, dtype=torch.uint8, device=device).set_(
            storage
        )
    return tensors


def tensors_of(model: nn.Module) -> Iterator[torch.Tensor]:
    """Every tensor that a model's layers hold, under any attribute; some appear more than once.

    Other models, configurations and process groups that a layer refers to are not among them.
    """
    seen: set[int] = set()
    for module in model.modules():
        yield from module.parameters(recurse=False)
        yield from module.buffers(recurse=False)
        members = (value for name, value in vars(module).items() if name not in _REGISTERED)
        yield from _tensors_among(members, seen)


_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})


def _tensors_among(values: Iterable[Any], seen: set[int]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, nn.Module) or id(value) in seen:
            continue
        elif isinstance(value, dict):
            seen.add(id(value))
            yield from _tensors_among(value.values(), seen)
        elif isinstance(value, (list, tuple, set)):
            seen.add(id(value))
            yield from _tensors_among(value, seen)
        elif type(value).__module__.startswith(_LAYERS) and hasattr(value, "__dict__"):
            seen.add(id(value))
            yield from _tensors_among(vars(value).values(), seen)
