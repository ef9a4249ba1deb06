"""The Makefile: short, without a list of tests, and with every target that a page names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", ".ci/run")),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / ".github").rglob("*.yml"),
    *(ROOT / "examples").rglob("*.md"),
]


def targets() -> set[str]:
    names = re.findall(r"^([a-z][a-z -]*):", MAKEFILE, re.MULTILINE)
    return {target for group in names for target in group.split()}


def named(text: str) -> set[str]:
    """The targets that a page calls as code, and those of the weekly workflow's matrix."""
    parts = re.search(r"part: \[(.*)\]", text)
    matrix = [f"test-{part.split()[0]}" for part in parts[1].split(", ")] if parts else []
    calls = re.findall(r"(?:`|^|run: |\$ )make ([a-z][a-z-]*[a-z])(?![\w-])", text, re.MULTILINE)
    return {*calls, *matrix} - {"test-"}


def test_every_target_that_a_page_names_exists() -> None:
    unknown = {
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in named(page.read_text(encoding="utf-8")) - targets()
    }
    assert unknown == set()
    assert named((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")) > {"test", "test-long"}


def test_makefile_is_short_and_chooses_tests_by_markers() -> None:
    assert len(MAKEFILE.splitlines()) <= 122
    assert re.findall(r"test_\w+\.py|--deselect|--ignore", MAKEFILE) == []


def test_every_marker_that_a_target_chooses_is_registered() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\nmarkers = [")[2]
    registered = set(re.findall(r'^    "([a-z0-9]+)[:(]', project, re.MULTILINE))
    chosen = re.findall(
        r'pytest -m "?(?:\$\(or \$\(M\),)?([a-z0-9() ]+)|M="([a-z0-9() ]+)"', MAKEFILE
    )
    words = {word for pair in chosen for word in re.findall(r"[a-z0-9]+", " ".join(pair))}
    assert words - {"and", "or", "not", "tests"} <= registered
    assert words >= {"engine", "trainer", "openrlhf", "trl", "long", "lane", "v2", "hooks", "gpu"}
