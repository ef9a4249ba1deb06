"""Patches that wait for their modules: each is applied in time, or the run stops."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from refused import refused

from tandem_plugin.patching import in_place

FRAMEWORK = in_place.Framework("Framework", "Install it.")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "patched_here.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(in_place, "_PLACED", {})
    yield "patched_here"
    sys.modules.pop("patched_here", None)


def double(module: ModuleType) -> None:
    module.value *= 2  # type: ignore[attr-defined]


def test_patch_is_applied_when_its_module_is_imported(module: str) -> None:
    FRAMEWORK.put([(module, double)])
    assert FRAMEWORK.is_in_place
    assert not in_place.Framework("Other").is_in_place
    assert importlib.import_module(module).value == 2
    FRAMEWORK.check()


def test_module_that_is_gone_stops_a_run_at_once(module: str) -> None:
    with refused("patched-module-missing", framework="Framework", module="gone_from_here"):
        FRAMEWORK.put([("gone_from_here", double)])
    assert not FRAMEWORK.is_in_place


def test_module_that_was_imported_past_its_patch_stops_a_run(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FRAMEWORK.put([(module, double)])
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    with refused("patched-module-imported", framework="Framework", module=module):
        FRAMEWORK.check()
