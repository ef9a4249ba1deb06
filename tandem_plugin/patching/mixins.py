"""Subclasses made over whichever class a run would use: a framework's own, or a user's of it.

A class of ours is a mixin: each of its methods calls ``super()``. Names that begin with ``tandem_``
or ``_tandem`` are its own; every other one is a method of the class below, and must be there.
"""

from __future__ import annotations

import inspect
from typing import Any

from tandem_plugin.errors import EngineError

__all__ = ["ForeignBase", "actor_in_tandem", "extended", "in_tandem"]

ForeignBase: Any = object
"""What a mixin derives from whose ``super()`` is the foreign class that it is put before."""


def in_tandem(base: type, ours: type) -> Any:
    """The subclass of ``base`` in which the methods of ``ours`` come first; ``base`` if it is one.

    ours: of the package ``tandem_<framework>``. Raises :class:`EngineError` where ``base`` lacks a
    method that ``ours`` extends, or where it has become a coroutine function or is none any more:
    it would never be called, or never awaited.
    """
    if issubclass(base, ours):
        return base
    for name, method in extended(ours).items():
        hook = getattr(base, name, None)
        if hook is None:
            problem = f"has no method {name}"
        elif inspect.iscoroutinefunction(hook) is not inspect.iscoroutinefunction(method):
            problem = f"has a method {name} that is awaited otherwise"
        else:
            continue
        framework = ours.__module__.partition(".")[0].removeprefix("tandem_")
        raise EngineError(
            "TP374",
            module=base.__module__,
            name=base.__qualname__,
            problem=problem,
            framework=framework,
        )
    return type(f"Tandem{base.__name__}", (ours, base), {"__module__": ours.__module__})


def actor_in_tandem(actor: Any, ours: type) -> Any:
    """The same for a class that ``ray.remote`` was applied to, with its options."""
    import ray

    derived = in_tandem(getattr(actor, "__ray_actor_class__", actor), ours)
    options = getattr(actor, "_default_options", None)
    return ray.remote(**options)(derived) if options else ray.remote(derived)


def extended(ours: type) -> dict[str, Any]:
    """The methods of a mixin that the class below must have, by name."""
    methods: dict[str, Any] = {}
    for one in reversed(ours.__mro__[:-1]):
        methods |= {
            name: value
            for name, value in vars(one).items()
            if inspect.isfunction(value) and not name.startswith(("tandem_", "_tandem", "__"))
        }
    return methods
