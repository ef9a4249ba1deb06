"""What a boundary resolver must be: checked when it is registered, and whenever it is used."""

from __future__ import annotations

import inspect

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import ConfigError
from tandem_plugin.plugins.registry import check_name

__all__ = ["check_resolver_function", "check_table"]


def check_resolver_function(name: object, resolver: object) -> None:
    """Raise :class:`ConfigError` unless this may be registered as a boundary resolver."""
    check_name("boundary resolver", name)
    if not callable(resolver):
        raise ConfigError("TP119", name=name, resolver=resolver)
    try:
        signature = inspect.signature(resolver)
    except (TypeError, ValueError):
        return  # written in C: nothing to read
    try:
        signature.bind(object())
    except TypeError as error:
        raise ConfigError("TP120", name=name, error=error) from error


def check_table(name: str, provider: object, table: object, size: int) -> NDArray[np.bool_]:
    """The table that a resolver returned, read-only: bool ``[size]``.

    Raises :class:`ConfigError` for anything else, naming who provides the resolver.
    """
    if not isinstance(table, np.ndarray) or table.dtype != np.bool_ or table.shape != (size,):
        raise ConfigError("TP121", name=name, provider=provider, found=_described(table), size=size)
    kept = table.copy()
    kept.setflags(write=False)
    return kept


def _described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return f"a {type(value).__name__}"
