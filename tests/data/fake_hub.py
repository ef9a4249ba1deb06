"""A Hugging Face Hub in memory, behind the library ``datasets``."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

__all__ = ["FakeHub"]

Rows = list[dict[str, Any]]


@dataclass
class FakeHub:
    """``sets``: by owner/name and configuration (None for the only one), the rows of each split."""

    sets: dict[str, dict[str | None, dict[str, Rows]]]
    revisions: dict[str, str] = field(default_factory=dict)
    """The commit that a set must be asked for by, where it is asked for by one."""
    calls: list[tuple[str, str | None, str | None, str | None]] = field(default_factory=list)

    def load_dataset(
        self,
        path: str,
        name: str | None = None,
        *,
        split: str | None = None,
        revision: str | None = None,
    ) -> Any:
        """As ``datasets.load_dataset``, with the errors of its version 5 in its own words."""
        self.calls.append((path, name, split, revision))
        if path not in self.sets or revision not in (None, self.revisions.get(path)):
            raise FileNotFoundError(f"Dataset '{path}' doesn't exist on the Hub.\nor at {revision}")
        configs = self.sets[path]
        if name is None and None not in configs:
            raise ValueError(
                "Config name is missing.\nPlease pick one among the available configs: "
                f"{list(configs)}\nExample of usage:\n\t`load_dataset('{path}', 'main')`"
            )
        if name not in configs:
            raise ValueError(f"BuilderConfig '{name}' not found. Available: {list(configs)}")
        splits = configs[name]
        if split is None:
            return splits
        if split not in splits:
            raise ValueError(f'Unknown split "{split}". Should be one of {list(splits)}.')
        return splits[split]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
        """Put it where ``import datasets`` finds it."""
        module = ModuleType("datasets")
        module.__spec__ = ModuleSpec("datasets", None)
        module.load_dataset = self.load_dataset  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", module)
        return self


def parameters(function: Any) -> list[str]:
    """The names that a function takes its arguments by."""
    return list(inspect.signature(function).parameters)
