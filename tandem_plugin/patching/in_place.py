"""Whether an adapter's patches are in place in this process, and whether they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import after_import, missed_modules, missing_modules

_PLACED: dict[str, tuple[str, ...]] = {}
"""The modules that patches wait for, by framework."""


def put_in_place(
    framework: str, patches: Sequence[tuple[str, Callable[[ModuleType], None]]], remedy: str
) -> None:
    """Apply each patch when its module is imported, or now if it already was; repeatable.

    patches: pairs of a module's name and its patch. remedy: how a user can fix a missing module.
    Raises :class:`EngineError` for a missing module: its patch would wait forever.
    """
    names = tuple(dict.fromkeys(name for name, _ in patches))
    if missing := missing_modules(names):
        raise EngineError(
            "patched-module-missing", framework=framework, module=missing[0], remedy=remedy
        )
    for name, patch in patches:
        after_import(name, patch)
    _PLACED[framework] = names


def is_in_place(framework: str) -> bool:
    """Whether the patches were applied in this process."""
    return framework in _PLACED


def check_in_place(framework: str) -> None:
    """Raise :class:`EngineError` if a module was imported without its patches."""
    if missed := missed_modules(_PLACED[framework]):
        raise EngineError("patched-module-imported", module=missed[0], framework=framework)
