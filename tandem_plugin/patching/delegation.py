"""Objects of ours that stand before a foreign one, in whose name they are called."""

from __future__ import annotations

from typing import Any

__all__ = ["Delegate"]


class Delegate:
    """Everything that a subclass does not do itself is the foreign object's own."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
