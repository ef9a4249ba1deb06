"""Callbacks that run right after a module is imported, so that waiting for it costs nothing.

Only the standard library is used here: an adapter's last resort stands on this module.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

__all__ = ["after_import"]

Callback = Callable[[ModuleType], None]


def after_import(name: str, callback: Callback) -> None:
    """Run ``callback(module)`` once the module ``name`` is imported; now if it already is."""
    module = sys.modules.get(name)
    if module is not None and not _is_initializing(module):
        callback(module)
        return
    _finder().callbacks.setdefault(name, []).append(callback)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.callbacks:
            return None
        spec: importlib.machinery.ModuleSpec | None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec = find_spec(fullname, path, target)
            if spec is not None:
                self._run_callbacks_after(spec)
                return spec
        return None

    def _run_callbacks_after(self, spec: importlib.machinery.ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for callback in self.callbacks.pop(spec.name, []):
                callback(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def _finder() -> _Finder:
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder


def _is_initializing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
