"""What is published, and the files that build and check it, name what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from scripts import module_of

from tandem_plugin import __version__

ROOT = Path(__file__).parents[1]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def metadata_of(repository: str) -> dict[str, Any]:
    """What the hook adds to the package's metadata where the sources are at ``repository``."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: it builds the package")
    module = module_of(ROOT / "hatch_build.py")
    metadata: dict[str, Any] = {}
    module.ProjectAddresses(str(ROOT), {"repository": repository}).update(metadata)
    return metadata


def test_links_of_the_readme_work_on_a_package_index_too() -> None:
    here = "https://forge.example/somebody/tandem-plugin"
    page = metadata_of(here)["readme"]["text"]
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert f"{here}/raw/main/docs/images/response.svg" in links
    assert f"{here}/blob/main/docs/verl.md" in links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    named = [re.sub(r"#.*", "", link).split("/main/", 1)[1] for link in links if here in link]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_changelog_begins_with_the_version_that_is_built() -> None:
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert heading[1] == __version__


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)
def test_image_is_built_from_the_constraint_file_of_a_tested_stack(file: Path) -> None:
    text = file.read_text()
    (default,) = re.findall(r"^ARG VLLM=(\S+)$", text, re.MULTILINE)
    named = set(re.findall(r'--constraint "(\S+)"', text))
    assert named == {f"{file.stem}-vllm-$VLLM.txt"}
    for version in (default, *re.findall(r"--build-arg VLLM=(\S+)", text)):
        assert (ROOT / "constraints" / f"{file.stem}-vllm-{version}.txt").exists()
    for place in re.findall(r"(?:docker run .*|--file) ((?:examples|docker)/\S+)", text):
        assert (ROOT / place).exists(), place
    (extras,) = re.findall(r'"/src\[([\w,]+)\]"', text)
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras.split(","))


def test_citation_is_of_the_version_that_is_built() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == __version__
    paper = citation["preferred-citation"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert paper["title"] in readme
    assert all(author["family-names"] in readme for author in paper["authors"])
