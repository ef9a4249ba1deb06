"""MkDocs' hook: the root folder's pages, the examples and the notebook become pages of the site.

The repository's address is the one in pyproject.toml. While it is empty, the site has no repository
link and no edit links, and other files of the repository that a page links to are copied into the
site. A link to a file that does not exist stays as it is, and the strict build fails on it.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "releasing.md": "RELEASING.md",
    "first-steps.md": "docs/notebooks/first_steps.ipynb",
    "rollouts-to-table.md": "docs/notebooks/rollouts.ipynb",
    "demo.md": "examples/demo/README.md",
    "study.md": "examples/study/README.md",
    "worlds.md": "examples/study/WORLDS.md",
    "plugin-example.md": "examples/tandem-plugin-curriculum/README.md",
}
"""Pages of the site that are not Markdown files in docs/, and their sources."""

SOURCES = {"cli.md": "docs/generate_cli.py", "troubleshooting.md": "tandem_plugin/refusals.json"}
"""Generated pages, and the file to edit instead."""

_COPIES = "files/"
"""Where the site has copies of other files that a page links to."""

_RARELY_MEANT = ("changelog.md", _COPIES)
"""Pages that the site's search lists after others, for they name everything."""

_LOOKED_UP = ("Reference", "Develop")
"""Sections of the navigation that the search lists after pages that say how to do something; so it
does with examples and notebooks."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")
_ROLE = re.compile(r":(?:class|data|func|meth|mod):<code>~?")
_FENCE = re.compile(r"(^```.*?^```\s*?$)", re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """Adds the repository link and the edit links, if the repository's address is known."""
    repository = address()
    if repository:
        config.repo_url = repository
        config.repo_name = repository.split("//")[-1].partition("/")[2]
        config.edit_uri = "edit/main/docs/"
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of :data:`PAGES`, and copies of other files that a page links to."""
    from mkdocs.structure.files import File

    for page, source in PAGES.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            content = notebook_page(content, source)
        files.append(File.generated(config, page, content=content))
    if not address():
        pages = [*PAGES.values(), *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
        for file in sorted(_all_copied(pages)):
            copy = File.generated(config, f"{_COPIES}{file}", content=(ROOT / file).read_bytes())
            files.append(copy)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrites links to files of the repository for the site, and sets the page's edit link."""
    place = page.file.src_uri
    sections = {section.title for section in page.ancestors}
    if place.startswith(_RARELY_MEANT):
        page.meta.setdefault("search", {"boost": 0.2})
    elif sections & {*_LOOKED_UP} or PAGES.get(place, "").startswith(("examples/", "docs/")):
        page.meta.setdefault("search", {"boost": 0.5})
    is_copy = place.startswith(_COPIES)
    source = PAGES.get(place, place.removeprefix(_COPIES) if is_copy else f"docs/{place}")
    repository = address()
    if repository:
        page.edit_url = f"{repository}/edit/main/{SOURCES.get(page.file.src_uri, source)}"
    parts = _FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else linked(part, source, repository) for part in parts
    )


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Shows the names in docstrings as code: Sphinx's roles are no Markdown."""
    return _ROLE.sub("<code>", html)


def notebook_page(notebook: str, source: str) -> str:
    """A notebook as Markdown: its texts, its code as Python, and its stored outputs.

    source: its file in the repository.
    """
    first, *rest = [
        part.strip() for cell in json.loads(notebook)["cells"] for part in _cell_parts(cell)
    ]
    title, _, text = first.partition("\n")
    where = f"A notebook of the repository, `{source}`, with its outputs."
    return "\n\n".join([title, where, text.strip(), *rest]) + "\n"


def _cell_parts(cell: Any) -> Iterator[str]:
    text = "".join(cell["source"])
    yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/html" in data:
            yield f'<div class="output">{" ".join("".join(data["text/html"]).split())}</div>'
        elif output.get("name") == "stdout" or "text/plain" in data:
            printed = "".join(output.get("text", data.get("text/plain", "")))
            yield f"```text\n{printed.rstrip()}\n```"


def linked(text: str, source: str, repository: str) -> str:
    """The text of a file of the repository, with its links as they are on the site."""
    own = {file: page for page, file in PAGES.items()}
    in_docs = source.startswith("docs/")
    page = own.get(source, source.removeprefix("docs/") if in_docs else f"{_COPIES}{source}")

    def there(link: re.Match[str]) -> str:
        picture, label, anchor = link[1], link[2], link[4] or ""
        file = _target(link, source)
        if file in own or file.startswith("docs/"):
            place = own.get(file, file.removeprefix("docs/"))
        elif not (ROOT / file).is_file():
            return link[0]
        elif repository:
            kind = "raw" if picture else "blob"
            return f"{picture}[{label}]({repository}/{kind}/main/{file}{anchor})"
        else:
            place = f"{_COPIES}{file}"
        return f"{picture}[{label}]({posixpath.relpath(place, posixpath.dirname(page))}{anchor})"

    return _LINK.sub(there, text)


def _target(link: re.Match[str], source: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link[3]))


def _all_copied(pages: Iterable[str]) -> set[str]:
    """The files that these pages link to, and those that a page among these files links to."""
    found: set[str] = set()
    left = set(pages)
    while left:
        new = {file for source in left for file in _copied(source)} - found
        found |= new
        left = {file for file in new if file.endswith(".md")}
    return found


def _copied(source: str) -> Iterator[str]:
    """The files of the repository that a page links to and that the site has no page for."""
    text = (ROOT / source).read_text(encoding="utf-8")
    for link in _LINK.finditer("".join(_FENCE.split(text)[::2])):
        file = _target(link, source)
        if file not in PAGES.values() and not file.startswith("docs/") and (ROOT / file).is_file():
            yield file


def address() -> str:
    """The repository's address in pyproject.toml, which ``TANDEM_REPOSITORY`` overrides."""
    found = re.search(r'^repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return os.environ.get("TANDEM_REPOSITORY", found[1] if found else "").rstrip("/")
