"""Shared by all unit tests: where real vocabularies lie, and small made-up ones."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tandem_plugin import Vocabulary

# Lanes of tests run side by side: more threads than cores make both many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell's job in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("refused")

settings.register_profile("tandem", deadline=None)
settings.load_profile("tandem")

ROOT = Path(__file__).parents[1]

BYTE_LEVEL = ("a", "b", "Ġa", "Ġb", ".ĊĊ", "c", "Ġ", ".")
"""A byte-level vocabulary; its word boundaries are the ids 2, 3 and 6."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs another trainer's environment than verl's, and tests of hooks, by place."""
    for item in items:
        place = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""
        for trainer in ("openrlhf", "trl", "skyrl"):
            if re.match(rf"tests/(adapters/tandem_{trainer}/|conformance/.*_{trainer}\b)", place):
                item.add_marker(trainer)
        if re.fullmatch(r"tests/adapters/\w+/test_(hooks|patched_symbols)\.py", place):
            item.add_marker("hooks")


@pytest.fixture
def byte_level() -> Vocabulary:
    return Vocabulary(BYTE_LEVEL, "byte-level")


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    """The byte-level vocabulary as a JSON object of token to id."""
    file = tmp_path / "vocab.json"
    file.write_text(json.dumps({piece: i for i, piece in enumerate(BYTE_LEVEL)}))
    return file


@pytest.fixture
def real_tokenizer() -> Callable[[str], Path]:
    """The path of a real vocabulary; the test is skipped where there is none."""

    def find(name: str) -> Path:
        folder = Path(os.environ.get("TANDEM_SHARED_DATA", ROOT.parent / "shared" / "data"))
        file = folder / "tokenizers" / name
        if not file.exists():
            pytest.skip(f"no real vocabulary at {file}: set TANDEM_SHARED_DATA to its folder")
        return file

    return find
