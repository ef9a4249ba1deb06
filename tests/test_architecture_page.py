"""docs/architecture.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_links_to_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", text)
    assert links
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_every_layer_of_the_core_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    folders = [f for f in (ROOT / "tandem_plugin").iterdir() if (f / "__init__.py").exists()]
    assert len(folders) > 8
    assert [f.name for f in folders if f"`tandem_plugin/{f.name}`" not in text] == []
