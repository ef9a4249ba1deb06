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

_Foreign: Any = object
"""The base of mixins; their ``super()`` is the foreign class that they precede."""


def _is_async(method: Any) -> bool:
    """Whether it is a coroutine function, also below a decorator such as ``torch.no_grad``."""
    return inspect.iscoroutinefunction(inspect.unwrap(method))


Patch = Callable[[ModuleType], None]


class Mixin(_Foreign):  # type: ignore[misc]
    """A class of ours, in a package ``tandem_<framework>``, that goes before a foreign one."""

    @classmethod
    def tandem_over(cls, base: Any) -> Any:
        """The subclass of ``base`` in which our methods come first; ``base`` if it is one.

        base: a class, or one that ``ray.remote`` was applied to, whose options are kept. Raises
        :class:`EngineError` if it lacks a method that ours extends, or if only one of the two is a
        coroutine function.
        """
        original = getattr(base, "__ray_actor_class__", base)
        if issubclass(original, cls):
            return base
        for name, method in extended(cls).items():
            hook = getattr(original, name, None)
            if hook is None:
                problem = f"has no method {name}"
            elif _is_async(hook) is not _is_async(method):
                problem = f"has a method {name} that changed between sync and async"
            else:
                continue
            raise EngineError(
                "patched-symbol-changed",
                module=original.__module__,
                name=original.__qualname__,
                problem=problem,
                framework=cls.__module__.partition(".")[0].removeprefix("tandem_"),
            )
        derived = type(
            f"Tandem{original.__name__}", (cls, original), {"__module__": cls.__module__}
        )
        return derived if base is original else _actor_like(base, derived)

    @classmethod
    def tandem_in_place_of(cls, name: str) -> Patch:
        """The patch that replaces a module's class, or Ray actor class, by one made with ours.

        It keeps the original's name, by which processes send it to each other, and an actor's
        options. Applied again, it does nothing. It raises AttributeError if the module has no such
        class, and like :meth:`tandem_over`.
        """

        def patch(module: ModuleType) -> None:
            current = getattr(module, name)
            # The class as it was written: Ray copied its methods into the one that it runs.
            original = getattr(current, "__ray_actor_class__", current)
            derived = cls.tandem_over(original)
            if derived is original:
                return
            for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
                setattr(derived, attribute, getattr(original, attribute))
            setattr(module, name, derived if current is original else _actor_like(current, derived))

        return patch

    @classmethod
    def tandem_check(cls, part: Any) -> None:
        """Raise :class:`EngineError` for a part of a trainer that is not built on ours."""
        if not isinstance(part, cls):
            kind = f"{type(part).__module__}.{type(part).__qualname__}"
            raise EngineError("trainer-class-replaced", kind=kind)


def _actor_like(actor: Any, derived: type) -> Any:
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
