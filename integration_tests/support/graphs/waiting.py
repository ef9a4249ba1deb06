"""What lets a host wait for its device, refused where a step of an engine must not wait.

On a CPU nothing waits, so the operations themselves are refused: those that bring a value to the
host, and those whose result has a shape that the host must learn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_TO_THE_HOST = {
    torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy,
    torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__,
    torch.Tensor.__array__, torch.Tensor.__contains__,
}  # fmt: skip
_aten = torch.ops.aten
_WAITING = {
    _aten._local_scalar_dense, _aten.item, _aten.is_nonzero, _aten.nonzero, _aten.nonzero_static,
    _aten.argwhere, _aten.masked_select, _aten.equal, _aten.allclose, _aten.unique_dim,
    _aten._unique, _aten._unique2, _aten.unique_consecutive, _aten.bincount,
}  # fmt: skip
_MASKS = (torch.bool, torch.uint8)


class HostWaitsError(RuntimeError):
    """The host would wait for the device where it must not."""


def _refuse(func: Any, args: Any, kwargs: Any, where: str) -> None:
    """Raise :class:`HostWaitsError` for an operation of PyTorch's dispatcher that waits."""
    packet = func.overloadpacket
    waits = packet in _WAITING
    if packet is _aten.repeat_interleave:
        waits = kwargs.get("output_size") is None and isinstance(args[-1], torch.Tensor)
    elif packet in (_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_):
        waits = any(i is not None and i.dtype in _MASKS for i in args[1])
        # One value through one mask is filled in without looking where.
        waits = waits and (packet is _aten.index or args[2].numel() > 1)
    if waits:
        raise HostWaitsError(f"{func} lets the host wait for the device in {where}.")


_stack: list[str | None] = [None]
"""Where the host is: the innermost watched region last, None where it may wait."""


@contextmanager
def watched(where: str) -> Iterator[None]:
    """Refuse, within, what lets the host wait."""
    _stack.append(where)
    try:
        with _Functions(), _Operations():
            yield
    finally:
        _stack.pop()


@contextmanager
def _excepted() -> Iterator[None]:
    """Let the host wait within."""
    _stack.append(None)
    try:
        yield
    finally:
        _stack.pop()


def watch(owner: Any, name: str) -> None:
    """Watch one function for good."""
    _wrap(owner, name, lambda: watched(f"{owner.__name__}.{name}"))


def let_wait(owner: Any, name: str) -> None:
    """Except one function for good."""
    _wrap(owner, name, _excepted)


def _wrap(owner: Any, name: str, context: Callable[[], Any]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    setattr(owner, name, within)


class _Functions(TorchFunctionMode):
    """Sees what never becomes an operation where host and device are one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        where = _stack[-1]
        to_host = func in _TO_THE_HOST or (func is torch.Tensor.to and "cpu" in args[1:])
        if where is not None and to_host:
            name = getattr(func, "__name__", func)
            raise HostWaitsError(f"Tensor.{name} lets the host wait for the device in {where}.")
        return func(*args, **(kwargs or {}))


class _Operations(TorchDispatchMode):
    """Sees every operation."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        where = _stack[-1]
        if where is not None:
            _refuse(func, args, kwargs or {}, where)
        return func(*args, **(kwargs or {}))
