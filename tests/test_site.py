"""The site: every page has its place, every link leads somewhere, refusals are the table's own."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import tandem_plugin
from tandem_plugin.refusals import REFUSALS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)")


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # where dataclasses look for its annotations
    spec.loader.exec_module(made)
    return made


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


def test_notebook_becomes_a_page_of_its_texts_and_code(site: Any) -> None:
    source = DOCS / "notebooks" / "first_steps.ipynb"
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    page = site.notebook_page(source.read_text(encoding="utf-8"), source.name)
    assert page.startswith("# First steps")
    code = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    assert code == ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all("".join(cell["source"][1:]).strip() in page for cell in cells)
    assert "[a](first-steps.md)" in site.linked(
        "[a](docs/notebooks/first_steps.ipynb)", "README.md", ""
    )


def test_names_in_docstrings_are_shown_as_code(site: Any) -> None:
    shown = site.on_page_content("Raises :class:<code>ConfigError</code>.", None, None, None)
    assert shown == "Raises <code>ConfigError</code>."


def test_api_page_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"members: \[(.*)\]", page))))
    public = {name for name in tandem_plugin.__all__ if not name.startswith("_")}
    assert public - {name for name in public if name.endswith("Error")} <= listed


def test_figure_of_speed_is_drawn_from_the_measured_table() -> None:
    figure = module("generate_speed_figure")
    drawn = figure.FIGURE.read_text(encoding="utf-8")
    assert drawn == figure.figure(figure.PERFORMANCE.read_text(encoding="utf-8")), (
        "docs/images/speed.svg is out of date: run python docs/generate_speed_figure.py"
    )
    assert drawn.count('class="lockstep"') == 5
    assert drawn.count('class="speculative"') == 8
    assert "speculative, 4 drafts 1.84" in drawn


@pytest.fixture(scope="module")
def troubleshooting() -> Any:
    return module("generate_troubleshooting")


def test_troubleshooting_page_is_what_the_code_refuses(troubleshooting: Any) -> None:
    assert troubleshooting.PAGE.read_text(encoding="utf-8") == troubleshooting.page(), (
        "docs/troubleshooting.md is out of date: run python docs/generate_troubleshooting.py"
    )


def test_troubleshooting_page_is_searched_by_code(troubleshooting: Any) -> None:
    page = troubleshooting.page()
    listed = re.findall(r"(?:^\| |<br>)(TP\d{3})\b", page, re.MULTILINE)
    for first, last in re.findall(r"^(TP\d{3}) to (TP\d{3}) are said", page, re.MULTILINE):
        listed += [code for code in REFUSALS if first <= code <= last]
    assert sorted(listed) == sorted(REFUSALS)


def test_values_of_a_run_are_marked_in_its_sentences(troubleshooting: Any) -> None:
    said = '{kind}={name!q} is {{"a": 1}} of {test_count:.2f}.\nLeave it out. {hint}'
    assert troubleshooting.cell(said) == (
        '‹kind›=‹name› is {"a": 1} of ‹test count›. Leave it out. Check the path.'
    )
    assert troubleshooting.cell("a_b <c> | d") == r"a\_b &lt;c&gt; \| d"
