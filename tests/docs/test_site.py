"""The site: every page has its place, every link leads somewhere, refusals are the table's own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from scripts import module_of

import tandem_plugin

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "notebooks" / "first_steps.ipynb"
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "RELEASING.md")
    ),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]
LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)")


def module(name: str) -> Any:
    return module_of(DOCS / f"{name}.py")


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


def test_every_page_has_its_place_in_the_sites_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(listed) == len(set(listed))
    made = set(module("site_pages").PAGES)
    assert {name for name in listed if not (DOCS / name).exists()} <= made
    assert {page.name for page in DOCS.glob("*.md")} | made <= set(listed)


def test_api_page_has_every_public_name() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"members: \[(.*)\]", page))))
    public = {name for name in tandem_plugin.__all__ if not name.startswith("_")}
    assert public - {name for name in public if name.endswith("Error")} <= listed


def test_generated_pages_are_up_to_date() -> None:
    troubleshooting = module("generate_troubleshooting")
    page = troubleshooting.page()
    assert troubleshooting.PAGE.read_text(encoding="utf-8") == page, (
        "run docs/generate_troubleshooting.py"
    )


def test_every_path_of_the_architecture_page_exists() -> None:
    folders = "tandem_plugin|adapters|tests|integration_tests|docs|examples"
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{folders})/[^`]+)`", page)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_stack_stands_in_the_table_of_versions_with_its_pins() -> None:
    page = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+\.txt)` \| ([\d., ]+)[^|]*(?::[^|]*)?\|", page, re.MULTILINE)
    pinned = {}
    for file in (ROOT / "constraints").glob("*-vllm-*.txt"):
        if not file.name.startswith("overrides"):
            pins = dict(re.findall(r"^([\w-]+)==(\S+)$", file.read_text(), re.MULTILINE))
            pinned[file.name] = [pins[name] for name in ("vllm", "torch", "transformers")]
    assert {name: [v.strip() for v in versions.split(",")] for name, versions in rows} == pinned


def test_changelog_and_citation_are_of_the_version_that_is_built() -> None:
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    version = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert heading is not None
    assert version is not None
    assert heading[1] == version[1].strip("\"'") == tandem_plugin.__version__


def test_links_lead_to_pages_copies_or_the_repository() -> None:
    pages = module("site_pages")
    text = "[a](docs/verl.md#lora) ![b](docs/images/x.svg) [c](CITATION.cff) [d](nowhere.md)"
    assert pages.linked(text, "README.md", "") == (
        "[a](verl.md#lora) ![b](images/x.svg) [c](files/CITATION.cff) [d](nowhere.md)"
    )
    copied = pages.linked("[s](../README.md)", "examples/study/results/study.md", "")
    assert copied == "[s](../../../../study.md)"
    assert {"examples/study/results/study.md", "examples/study/results/curves.svg"} <= (
        pages._all_copied(["examples/study/README.md"])
    )
    there = pages.linked("[c](../CITATION.cff) [e](index.md)", "docs/verl.md", "https://host/own")
    assert there == "[c](https://host/own/blob/main/CITATION.cff) [e](index.md)"


def test_notebooks_outputs_are_stored_and_shown() -> None:
    page = module("site_pages").notebook_page(NOTEBOOK.read_text(encoding="utf-8"), "docs/x.ipynb")
    assert '<div class="output"><div style=' in page
    assert "`docs/x.ipynb`" in page
    assert re.search(r"```text\n\d+% by the senior, \d+ handoffs\n", page)


def test_packages_page_and_addresses_are_whole_once_the_repository_is_known() -> None:
    """What a package index shows of the wheel: absolute links and pictures, addresses, authors."""
    hook = module_of(ROOT / "hatch_build.py")
    text = hook.absolute_links((ROOT / "README.md").read_text(encoding="utf-8"), "https://host/own")
    pages = module("site_pages")
    assert [link[0] for link in pages._LINK.finditer(text)] == []
    assert "![" in text
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert all(one.startswith("https://host/own/raw/main/") for one in pictures)
    assert {"Repository", "Documentation", "Changelog", "Issues"} == set(hook.PLACES)


def test_metadata_has_authors_addresses_and_a_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a wheel would be built for a release, whose address is one setting."""
    builders = pytest.importorskip("hatchling.metadata.core", reason="hatchling is not installed")
    plugins = pytest.importorskip("hatchling.plugin.manager")
    monkeypatch.setenv("TANDEM_REPOSITORY", "https://host/own")
    metadata = builders.ProjectMetadata(str(ROOT), plugins.PluginManager())
    core = metadata.core
    assert core.authors == [{"name": "The tandem-plugin contributors"}]
    assert core.urls["Issues"] == "https://host/own/issues"
    assert set(core.urls) == {"Repository", "Documentation", "Changelog", "Issues"}
    assert "https://host/own/raw/main/docs/images/demo.svg" in core.readme
    pythons = {c.rpartition(" ")[2] for c in core.classifiers if ":: Python :: 3." in c}
    assert pythons == {"3.10", "3.11", "3.12"}  # for which the constraint files were resolved


def test_no_message_sends_a_user_of_the_wheel_to_a_file_of_the_checkout() -> None:
    """Neither a refusal nor another sentence of the package, but for docstrings."""
    named = re.compile(r"docs/[a-z-]+\.md|examples/|constraints/|\bcheckout\b")
    found = []
    for folder in ("tandem_plugin", "adapters"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
            found += [
                f"{file.relative_to(ROOT)}:{node.lineno} {node.value!r}"
                for node in nodes
                if isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and not isinstance(parents[node], ast.Expr)  # a docstring
                and named.search(node.value)
            ]
    refusals = (ROOT / "tandem_plugin" / "refusals.json").read_text(encoding="utf-8")
    found += [line for line in refusals.splitlines() if named.search(line)]
    assert [one for one in found if not one.startswith("tandem_plugin/lab/recipes/stacks.py")] == []
