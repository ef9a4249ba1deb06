"""The hooks that a plugin implements; each is called once per process, never while generating."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tandem_plugin.boundaries.vocabulary import Vocabulary

PROJECT = "tandem_plugin"
"""The name of the hooks' project, and of the entry-point group that plugins are found in."""


class RegisterResolver(Protocol):
    """Registers a boundary resolver under a name."""

    def __call__(
        self,
        name: str,
        resolver: Callable[[Vocabulary], NDArray[Any]],
        classes: tuple[str, ...] = (),
    ) -> None:
        """resolver: returns bool ``[vocab]``; with the names of classes, uint8 or uint16."""


hookspec = pluggy.HookspecMarker(PROJECT)

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as the implementation of the hook of its name."""


@hookspec
def register_schedules(register: Callable[[type[Any]], None]) -> None:
    """Register schedules: call ``register(schedule_class)`` for each."""


@hookspec
def register_boundaries(register: RegisterResolver) -> None:
    """Register boundary resolvers: call ``register(name, resolver)``, for token classes
    ``register(name, resolver, classes)``, for each."""
