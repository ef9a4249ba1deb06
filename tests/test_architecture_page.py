"""docs/architecture.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

from test_layers import LAYERS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FOLDERS = ("tandem_plugin", "adapters", "tests", "integration_tests", "docs", "examples")


def paths(text: str) -> list[str]:
    """What stands in backquotes and begins with one of the project's folders."""
    return re.findall(rf"`((?:{'|'.join(FOLDERS)})/[^`]+)`", text)


def test_every_path_of_the_architecture_page_exists() -> None:
    named = paths(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_layers_of_the_page_are_those_that_imports_are_held_to() -> None:
    """The page has them from the top down, the test from the bottom up."""
    table = PAGE.read_text(encoding="utf-8").partition("| Layer | Where |")[2].partition("\n\n")[0]
    rows = [set(map(part, paths(line))) for line in table.splitlines() if "`" in line]
    core = [set(parts) - {"_version"} for parts in reversed(LAYERS)]
    assert rows == core


def part(path: str) -> str:
    """What the table of layers calls a file or folder."""
    place = Path(path).parent if path.endswith("__init__.py") else Path(path).with_suffix("")
    return ".".join(place.parts[-2:]) if "lab" in place.parts[:-1] else place.name
