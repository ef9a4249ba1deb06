"""What installed adapters say of their trainers."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tandem_plugin.files import trainers as module
from tandem_plugin.files.trainers import FILE, trainers

ADAPTERS = Path(__file__).parents[2] / "adapters"


def test_every_adapter_describes_its_trainer() -> None:
    folders = {file.parent.name for file in ADAPTERS.glob("*/__init__.py")}
    assert {file.parent.name for file in ADAPTERS.glob(f"*/{FILE}")} == folders
    assert len(trainers()) == len(folders)


def test_a_trainers_engine_has_a_module_of_the_trainers() -> None:
    for trainer in trainers():
        assert trainer.engine.startswith(f"{trainer.name.lower()}.")
        assert bool(trainer.if_inactive) is trainer.in_engines
        if trainer.settings:
            name, _, function = trainer.settings.partition(":")
            assert callable(getattr(importlib.import_module(name), function))


def test_first_place_of_the_path_wins_and_nothing_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("first", "second"):
        folder = tmp_path / place / "tandem_toy"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise AssertionError")
        fields = {"name": place, "engine": "toy.engine", "command": "python -m tandem_toy"}
        (folder / FILE).write_text(json.dumps(fields))
    places = [str(tmp_path / "missing"), str(tmp_path / "first"), str(tmp_path / "second")]
    monkeypatch.setattr(sys, "path", places)
    trainers.cache_clear()
    try:
        (trainer,) = trainers()
        assert (trainer.name, trainer.in_engines, trainer.export) == ("first", False, "")
        assert module.trainers_of_engine() == []
        monkeypatch.setitem(sys.modules, "toy.engine", module)
        assert module.trainers_of_engine() == [trainer]
    finally:
        trainers.cache_clear()
