"""Whether an adapter's patches are in place in this process, and whether they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import after_import, missed_modules, missing_modules

__all__ = ["check_in_place", "is_in_place", "put_in_place"]

_PLACED: dict[str, tuple[str, ...]] = {}
"""The modules that patches wait for, by framework."""


def put_in_place(
    framework: str, patches: Sequence[tuple[str, Callable[[ModuleType], None]]], mend: str
) -> None:
    """Apply each patch when its module is imported, or now if it was; repeatable.

    patches: pairs of a module's name and what is done to it. mend: what a user can do about a
    module that is not there. Raises :class:`EngineError` for one: its patch would wait for ever.
    """
    names = tuple(dict.fromkeys(name for name, _ in patches))
    if missing := missing_modules(names):
        raise EngineError("TP372", framework=framework, module=missing[0], mend=mend)
    for name, patch in patches:
        after_import(name, patch)
    _PLACED[framework] = names


def is_in_place(framework: str) -> bool:
    """Whether the patches were put in place in this process."""
    return framework in _PLACED


def check_in_place(framework: str) -> None:
    """Raise :class:`EngineError` where a module was imported past the patches that wait for it."""
    if missed := missed_modules(_PLACED[framework]):
        raise EngineError("TP373", module=missed[0], framework=framework)
