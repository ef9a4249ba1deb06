"""Whether an adapter's patches are in place in this process, and whether they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

from tandem_plugin.errors import EngineError
from tandem_plugin.patching.after_import import after_import, missed_modules, missing_modules

_PLACED: dict[str, tuple[str, ...]] = {}
"""The modules that patches wait for, by framework."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework whose processes an adapter patches, or is active in without a patch."""

    name: str
    remedy: str = ""
    """How a user can fix a missing module."""

    def put(self, patches: Sequence[tuple[str, Callable[[ModuleType], None]]] = ()) -> None:
        """Apply each patch when its module is imported, or now if it already was; repeatable.

        patches: pairs of a module's name and its patch. Raises :class:`EngineError` for a missing
        module: its patch would wait forever.
        """
        names = tuple(dict.fromkeys(name for name, _ in patches))
        if missing := missing_modules(names):
            raise EngineError(
                "patched-module-missing",
                framework=self.name,
                module=missing[0],
                remedy=self.remedy,
            )
        for name, patch in patches:
            after_import(name, patch)
        _PLACED[self.name] = names

    @property
    def is_in_place(self) -> bool:
        """Whether the patches were applied in this process."""
        return self.name in _PLACED

    def check(self) -> None:
        """Raise :class:`EngineError` if a module was imported without its patches."""
        if missed := missed_modules(_PLACED[self.name]):
            raise EngineError("patched-module-imported", module=missed[0], framework=self.name)
