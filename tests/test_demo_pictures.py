"""The pictures of the README and the pages: whole, well-formed, and of the run they are made of."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tandem_plugin import Vocabulary

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def pictures() -> Any:
    spec = importlib.util.spec_from_file_location(
        "pictures", ROOT / "examples" / "demo" / "pictures.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_response_is_shown_whole_with_its_authors(pictures: Any) -> None:
    turn = ("<|im_start|>", "user", "Ċ", "Is", "Ġ2", "Ġless?")
    pieces = ("2", "Ġ<Ġ", "3", "Ċ", "Ġso", "<|im_end|>", *turn)
    rollout = {
        "prompt_ids": [6, 7, 3, 9, 10, 11, 5],
        "response_ids": [0, 1, 2, 3, 4, 5],
        "authorship": [1, 0, 0, 1, 1, 0],
    }
    svg = pictures.response_picture(rollout, Vocabulary(pieces, "a test"))
    said = texts(svg)
    assert said[0] == "Is 2 less?"
    assert "".join(said[1:]).startswith("2 < 3so")
    marks = re.findall(r'<rect class="(senior|junior)"', svg)
    assert marks == ["senior", "junior", "senior", "senior", "junior"]  # the last two: the legend
    assert "3 handoffs" in svg


def test_long_lines_are_cut_at_spaces_and_nothing_is_lost(pictures: Any) -> None:
    text = " ".join(f"word{i}" for i in range(60))
    lines = list(pictures.lines_of([(c, i % 2) for i, c in enumerate(text)]))
    assert all(len(line) <= pictures.COLUMNS for line in lines)
    assert " ".join("".join(c for c, _ in line) for line in lines) == text


def test_the_figure_says_what_was_measured(pictures: Any) -> None:
    solved = {"senior alone": [(0, 0.25), (20, 0.625)], "team": [(0, 0.2), (20, 0.5)]}
    said = texts(pictures.learning_picture([(1, 0.3), (20, 0.6)], solved))
    assert "25.0% to 62.5%" in said
    assert "20.0% to 50.0%" in said
    assert "30.0% to 60.0%" in said


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=str)
def test_pictures_are_shown_on_a_page_and_small(file: Path) -> None:
    pages = dict.fromkeys((ROOT / "docs").glob("*.md"), f"(images/{file.name})")
    pages[ROOT / "README.md"] = f"(docs/images/{file.name})"
    assert any(link in page.read_text(encoding="utf-8") for page, link in pages.items())
    assert ElementTree.fromstring(file.read_text(encoding="utf-8")).get("aria-label")
    assert file.stat().st_size < 40_000
