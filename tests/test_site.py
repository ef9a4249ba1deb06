"""The site: every page has its place, every link leads somewhere, refusals are the table's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from scripts import module_of

import tandem_plugin

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)")


def module(name: str) -> Any:
    return module_of(DOCS / f"{name}.py")


@pytest.fixture(scope="module")
def site() -> Any:
    return module("site_pages")


def anchors(page: Path) -> set[str]:
    """Those of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in LINK.findall(text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}#{anchor}"


def test_every_page_has_its_place_in_the_sites_navigation(site: Any) -> None:
    listed = re.findall(r": ([\w/-]+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(listed) == len(set(listed))
    made = set(site.PAGES)
    assert {name for name in listed if not (DOCS / name).exists()} <= made
    assert {page.name for page in DOCS.glob("*.md")} | made <= set(listed)


def test_links_between_the_root_folder_and_the_site_lead_to_the_sites_pages(site: Any) -> None:
    text = "[a](docs/verl.md#settings) ![b](docs/images/x.svg) [c](CONTRIBUTING.md) [d](#here)"
    assert site.linked(text, "README.md", "") == (
        "[a](verl.md#settings) ![b](images/x.svg) [c](contributing.md) [d](#here)"
    )
    assert site.linked("[r](../README.md#install)", "docs/verl.md", "") == "[r](index.md#install)"


def test_links_to_what_is_not_of_the_site_lead_to_the_sources_or_are_no_links(site: Any) -> None:
    link = "[the study](../examples/study/README.md)"
    there = site.linked(link, "docs/evaluation.md", "https://forge.example/x")
    assert there == "[the study](https://forge.example/x/blob/main/examples/study/README.md)"
    assert site.linked(link, "docs/evaluation.md", "") == "the study"
    nowhere = "[x](../nowhere.md)"
    assert site.linked(nowhere, "docs/evaluation.md", "") == nowhere


def test_api_page_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"members: \[(.*)\]", page))))
    public = {name for name in tandem_plugin.__all__ if not name.startswith("_")}
    assert public - {name for name in public if name.endswith("Error")} <= listed


@pytest.fixture(scope="module")
def troubleshooting() -> Any:
    return module("generate_troubleshooting")


def test_troubleshooting_page_is_what_the_code_refuses(troubleshooting: Any) -> None:
    assert troubleshooting.PAGE.read_text(encoding="utf-8") == troubleshooting.page(), (
        "docs/troubleshooting.md is out of date: run python docs/generate_troubleshooting.py"
    )
