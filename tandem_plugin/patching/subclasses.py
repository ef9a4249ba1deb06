"""Subclasses of ours in the place of a foreign library's classes, found by their modules' names."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.mixins import in_tandem

__all__ = ["Patch", "check_part", "in_place_of"]

Patch = Callable[[ModuleType], None]


def in_place_of(name: str, ours: type) -> Patch:
    """The patch that puts a class made of ``ours`` and a module's class in that class's place.

    ours: a mixin (:mod:`tandem_plugin.patching.mixins`). What is made goes by the original's name,
    by which processes send it to each other. Behind the name may be a Ray actor class: then it is
    made of the class behind that, with the actor's options. Applied again, the patch does nothing;
    where a module has no such class, it raises AttributeError, and :class:`EngineError` where the
    class is not one that ``ours`` extends.
    """

    def patch(module: ModuleType) -> None:
        found = getattr(module, name)
        # The class as it was written: Ray copied its methods into the one that it runs.
        original = getattr(found, "__ray_actor_class__", found)
        made = in_tandem(original, ours)
        if made is original:
            return
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(made, attribute, getattr(original, attribute))
        if found is not original:
            import ray

            options = found._default_options
            made = ray.remote(**options)(made) if options else ray.remote(made)
        setattr(module, name, made)

    return patch


def check_part(part: Any, ours: type) -> None:
    """Raise :class:`EngineError` for a part of a trainer that was not made of ``ours``."""
    if not isinstance(part, ours):
        kind = f"{type(part).__module__}.{type(part).__qualname__}"
        raise EngineError("TP375", kind=kind)
