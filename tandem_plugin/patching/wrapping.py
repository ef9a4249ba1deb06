"""Wraps a foreign library's functions, methods and objects."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_MARK = "_tandem_wrapped"


def wrap_once(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``wrapper(original, *args, **kwargs)``, unless already done.

    Name, docstring and signature remain the original's for inspection, and a coroutine function
    remains one (Ray and vLLM check). Raises AttributeError if ``owner`` has no ``name``, and
    TypeError if only one of original and wrapper is a coroutine function: the original is then no
    longer what the wrapper was written for.
    """
    original = getattr(owner, name)
    if getattr(original, _MARK, False):
        return
    is_async = inspect.iscoroutinefunction(wrapper)
    if inspect.iscoroutinefunction(original) is not is_async:
        now = "is no longer a coroutine function" if is_async else "has become a coroutine function"
        raise TypeError(f"{getattr(owner, '__name__', owner)}.{name} {now}.")
    wrapped: Callable[..., Any]
    if is_async:

        @functools.wraps(original)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            return await wrapper(original, *args, **kwargs)

    else:

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

    setattr(wrapped, _MARK, True)
    setattr(owner, name, wrapped)


@contextmanager
def replaced(owner: Any, name: str, wrapper: Callable[..., Any]) -> Iterator[None]:
    """Let an object's method, or a module's function, be ``wrapper(it, ...)`` within; no longer."""
    is_own = name in vars(owner)  # not its class's
    method = getattr(owner, name)
    setattr(owner, name, functools.partial(wrapper, method))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, method)
        else:
            delattr(owner, name)


class Delegate:
    """Forwards everything that a subclass does not define to the foreign object."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
