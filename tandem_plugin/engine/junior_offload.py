"""A frozen model's tensors on the host: copied there once, and back after every level-2 sleep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

__all__ = ["HostCopy", "tensors_of"]

_LAYERS = ("vllm.model_executor.", "vllm.v1.attention.", "vllm.attention.")
"""Packages whose objects keep a layer's tensors: kernels and attention backends."""


class HostCopy:
    """The tensors of a frozen model, which a sleep of level 2 would discard.

    Besides parameters and buffers, these include plain tensors that layers derive from their
    weights (a quantised MLA's ``W_UV``, a kernel's workspace), which nothing reloads. They are
    collected on construction, which must precede the allocation of KV caches.
    """

    def __init__(self, model: nn.Module) -> None:
        self._device = next(model.parameters()).device
        found = (tensor.untyped_storage() for tensor in tensors_of(model))
        self._storages = {
            storage.data_ptr(): storage
            for storage in found
            if storage.device == self._device and storage.nbytes()
        }
        self._copies: dict[int, torch.Tensor] = {}
        self._is_held = False

    @property
    def is_held(self) -> bool:
        """Whether the tensors are only on the host, from :meth:`hold` to :meth:`restore`."""
        return self._is_held

    def hold(self) -> None:
        """Copy the tensors to the host, once: the model is frozen."""
        if not self._copies:
            self._copies = {
                place: _copied(_bytes_of(storage)) for place, storage in self._storages.items()
            }
        self._is_held = True

    def restore(self) -> None:
        """Restore the tensors' contents if they were held; their memory has been reallocated."""
        if not self._is_held:
            return
        for place, storage in self._storages.items():
            _bytes_of(storage).copy_(self._copies[place])
        self._is_held = False


def tensors_of(model: nn.Module) -> Iterator[torch.Tensor]:
    """Every tensor that a model's layers hold, under any attribute; some appear more than once.

    Skips other models, configurations and process groups that a layer refers to.
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


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host; page-locked if it comes from a device, for faster copies back."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=_pins(tensor.device))
    return copy.copy_(tensor)


def _pins(device: torch.device) -> bool:
    """Whether copies of a device's tensors are page-locked."""
    if device.type == "cpu":
        return False
    from vllm.utils.platform_utils import is_pin_memory_available

    return bool(is_pin_memory_available())


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """A storage as a tensor: uint8 ``[bytes]``."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
