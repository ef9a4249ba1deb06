"""Every number with an error in README and the pages is recomputed from rows in the repository."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo"
sys.path.append(str(DEMO))
PAGES = [ROOT / "README.md", DEMO / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NUMBER = re.compile(r"[+-]?\d+\.\d+ ± \d+\.\d+")
STUDY = re.compile(r"\[`make study`\].*?(?=\n\n)", re.DOTALL)
"""The paragraph about the study, whose own tests recompute its numbers."""

evaluation = pytest.importorskip("evaluation", reason="NumPy is not installed")


def published(rows: str) -> list[list[str]]:
    scores = evaluation.read_scores(evaluation.RESULTS / rows)
    assert scores, f"{rows} is missing"
    return evaluation.table(scores)


@pytest.mark.parametrize("page", [ROOT / "README.md", DEMO / "README.md"])
def test_the_demos_table_is_that_of_its_rows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in evaluation.markdown(published("words.jsonl")):
        assert line in text, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_number_with_an_error_comes_from_the_rows(page: Path) -> None:
    known = {cell for row in published("words.jsonl") for cell in row}
    text = STUDY.sub("", page.read_text(encoding="utf-8"))
    assert [found for found in NUMBER.findall(text) if found not in known] == []


def test_the_demo_learns_by_ten_points_and_three_errors_everywhere() -> None:
    heading, *rows = published("words.jsonl")
    assert len(rows) == 6  # alone and as a team, at three temperatures
    for place in (i for i, name in enumerate(heading) if name == "rise"):
        for row in rows:
            points, error = map(float, row[place].split(" ± "))
            assert points >= 10, row
            assert points >= 3 * error, row


def test_the_rows_are_small_enough_to_be_kept() -> None:
    kept = [file for file in (ROOT / "examples").rglob("*.jsonl") if "results" in file.parts]
    assert sum(file.stat().st_size for file in kept) < 5_000_000
