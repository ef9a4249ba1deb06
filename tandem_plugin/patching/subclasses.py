"""Subclasses of ours in the place of a foreign library's classes, found by their modules' names."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["Patch", "in_place_of", "is_ours"]

Patch = Callable[[ModuleType], None]

_MARK = "_tandem_subclasses"
"""The attribute of a subclass of ours that names the functions which made it and its parents."""


def in_place_of(
    name: str, confirm: Callable[[type], None] | None = None
) -> Callable[[Callable[[Any], type]], Patch]:
    """Make a patch of ``subclass_of(original)``: it puts the subclass in a module's class's place.

    The subclass goes by the original's name, by which processes send it to each other. Behind the
    name may be a Ray actor class: then it is the class behind that which is subclassed, and
    ``confirm`` is called with the subclass. Applied again, the patch does nothing; where a module
    has no such class, it raises AttributeError.
    """

    def patch_of(subclass_of: Callable[[Any], type]) -> Patch:
        def patch(module: ModuleType) -> None:
            found = getattr(module, name)
            actor = getattr(found, "__ray_metadata__", None)
            # The class as it was written: Ray copied its methods into the one that it runs.
            original = found if actor is None else actor.modified_class.__ray_actor_class__
            makers = getattr(original, _MARK, ())
            if subclass_of.__qualname__ in makers:
                return
            made: Any = subclass_of(original)
            for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
                setattr(made, attribute, getattr(original, attribute))
            setattr(made, _MARK, (*makers, subclass_of.__qualname__))
            if actor is not None:
                import ray

                if confirm is not None:
                    confirm(made)
                options = found._default_options
                made = ray.remote(**options)(made) if options else ray.remote(made)
            setattr(module, name, made)

        patch.__doc__ = subclass_of.__doc__
        return patch

    return patch_of


def is_ours(thing: Any) -> bool:
    """Whether an object is of a class that was put in place, or of one derived from it."""
    return hasattr(type(thing), _MARK)
