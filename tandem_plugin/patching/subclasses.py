"""Subclasses made over whichever class a run would use: a framework's own, or a user's of it.

A class of ours is a mixin: each of its methods calls ``super()``. Names that begin with ``tandem_``
or ``_tandem`` are its own; every other one is a method of the class below, and must be there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tandem_plugin.errors import EngineError

ForeignBase: Any = object
"""The base of mixins; their ``super()`` is the foreign class that they precede."""


def _is_async(method: Any) -> bool:
    """Whether it is a coroutine function, also below a decorator such as ``torch.no_grad``."""
    return inspect.iscoroutinefunction(inspect.unwrap(method))


def in_tandem(base: type, ours: type) -> Any:
    """The subclass of ``base`` in which the methods of ``ours`` come first; ``base`` if it is one.

    ours: of the package ``tandem_<framework>``. Raises :class:`EngineError` if ``base`` lacks a
    method that ``ours`` extends, or if only one of the two is a coroutine function.
    """
    if issubclass(base, ours):
        return base
    for name, method in extended(ours).items():
        hook = getattr(base, name, None)
        if hook is None:
            problem = f"has no method {name}"
        elif _is_async(hook) is not _is_async(method):
            problem = f"has a method {name} that changed between sync and async"
        else:
            continue
        framework = ours.__module__.partition(".")[0].removeprefix("tandem_")
        raise EngineError(
            "patched-symbol-changed",
            module=base.__module__,
            name=base.__qualname__,
            problem=problem,
            framework=framework,
        )
    return type(f"Tandem{base.__name__}", (ours, base), {"__module__": ours.__module__})


def actor_in_tandem(actor: Any, ours: type) -> Any:
    """The same for a class that ``ray.remote`` was applied to, with its options."""
    return _like(actor, in_tandem(getattr(actor, "__ray_actor_class__", actor), ours))


def _like(actor: Any, derived: type) -> Any:
    """A class as a Ray actor class, with the options of ``actor``."""
    import ray

    options = getattr(actor, "_default_options", None)
    return ray.remote(**options)(derived) if options else ray.remote(derived)


def extended(ours: type) -> dict[str, Any]:
    """The methods of a mixin that the class below must have, by name."""
    methods: dict[str, Any] = {}
    for mixin in reversed(ours.__mro__[:-1]):
        methods |= {
            name: value
            for name, value in vars(mixin).items()
            if inspect.isfunction(value) and not name.startswith(("tandem_", "_tandem", "__"))
        }
    return methods


Patch = Callable[[ModuleType], None]


def in_place_of(name: str, ours: type) -> Patch:
    """The patch that replaces a module's class, or Ray actor class, by one made with ``ours``.

    It keeps the original's name, by which processes send it to each other, and an actor's options.
    Applied again, it does nothing. It raises AttributeError if the module has no such class, and
    like :func:`in_tandem`.
    """

    def patch(module: ModuleType) -> None:
        current = getattr(module, name)
        # The class as it was written: Ray copied its methods into the one that it runs.
        original = getattr(current, "__ray_actor_class__", current)
        extended_class = in_tandem(original, ours)
        if extended_class is original:
            return
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(extended_class, attribute, getattr(original, attribute))
        setattr(
            module, name, extended_class if current is original else _like(current, extended_class)
        )

    return patch


def check_part(part: Any, ours: type) -> None:
    """Raise :class:`EngineError` for a part of a trainer that is not built on ``ours``."""
    if not isinstance(part, ours):
        kind = f"{type(part).__module__}.{type(part).__qualname__}"
        raise EngineError("trainer-class-replaced", kind=kind)
