"""Callbacks that run right after a module is imported; waiting for it costs nothing.

Only the standard library is used here: adapters load this module as a last resort.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

Callback = Callable[[ModuleType], None]


def after_import(name: str, callback: Callback) -> None:
    """Run ``callback(module)`` once the module ``name`` is imported; now if it already is."""
    module = sys.modules.get(name)
    if module is not None and not _is_initializing(module):
        callback(module)
        return
    _finder().callbacks.setdefault(name, []).append(callback)


def missing_modules(names: Iterable[str]) -> list[str]:
    """The modules that no import could find; their callbacks would wait forever.

    Only the package of the first part of a name is looked up by all of Python's finders; nothing is
    imported, since parent packages of a framework import most of it.
    """
    return [name for name in names if not _exists(name)]


def missed_modules(names: Iterable[str]) -> list[str]:
    """The modules that were imported without running the callbacks that wait for them."""
    waiting = _finder().callbacks
    return [
        name
        for name in names
        if name in waiting and name in sys.modules and not _is_initializing(sys.modules[name])
    ]


def _exists(name: str) -> bool:
    if name in sys.modules:
        return True
    package, *parts = name.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not parts:
        return spec is not None
    for folder in spec.submodule_search_locations or ():
        finder = pkgutil.get_importer(os.path.join(folder, *parts[:-1]))
        module_spec = None if finder is None else finder.find_spec(name)
        if (
            module_spec is not None and module_spec.loader is not None
        ):  # a folder without code has none
            return True
    return False


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
