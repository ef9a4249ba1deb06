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
    in_place.put_in_place("Framework", [(module, double)], "Install it.")
    assert in_place.is_in_place("Framework")
    assert not in_place.is_in_place("Other")
    assert importlib.import_module(module).value == 2
    in_place.check_in_place("Framework")


def test_module_that_is_gone_stops_a_run_at_once(module: str) -> None:
    with refused("patched-module-missing", framework="Framework", module="gone_from_here"):
        in_place.put_in_place("Framework", [("gone_from_here", double)], "Install it.")
    assert not in_place.is_in_place("Framework")


def test_module_that_was_imported_past_its_patch_stops_a_run(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place.put_in_place("Framework", [(module, double)], "Install it.")
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    with refused("patched-module-imported", framework="Framework", module=module):
        in_place.check_in_place("Framework")
