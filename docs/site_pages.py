"""MkDocs' hook: the root folder's pages and the notebook become pages of the site, and links lead
where they can.

A link to a file that is not of the site goes to where the sources are, by the one address in
pyproject.toml; while there is none, the link's text stands alone. A link to what is nowhere stays
as it is, and the strict build fails on it.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "first-steps.md": "docs/notebooks/first_steps.ipynb",
}
"""Pages of the site that are no Markdown in docs/, each by the file that it is."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")
_ROLE = re.compile(r":(?:class|data|func|meth|mod):<code>~?")
_FENCE = re.compile(r"(^```.*?^```\s*?$)", re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Adds the root folder's pages and the notebook's."""
    from mkdocs.structure.files import File

    for page, source in PAGES.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            content = notebook_page(content, posixpath.basename(source))
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lets each link lead to the site's page of its file, or to the sources."""
    source = PAGES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    repository = address()
    parts = _FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else linked(part, source, repository) for part in parts
    )


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Shows the names in docstrings as code: Sphinx's roles are no Markdown."""
    return _ROLE.sub("<code>", html)


def notebook_page(notebook: str, name: str) -> str:
    """A notebook as Markdown: its texts, and its code as Python."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(notebook)["cells"]]
    parts = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells]
    title, *rest = parts[0].split("\n", 1)
    where = f"The notebook `docs/notebooks/{name}` of a checkout; a test runs it whole."
    return "\n\n".join([title, where, *(text.strip() for text in rest), *parts[1:]]) + "\n"


def linked(text: str, source: str, repository: str) -> str:
    """The text of a file of the project, with links as the site has them."""
    own = {file: page for page, file in PAGES.items()}
    page = own.get(source, source.removeprefix("docs/"))

    def there(link: re.Match[str]) -> str:
        picture, said, target, anchor = link[1], link[2], link[3], link[4] or ""
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if file in own or file.startswith("docs/"):
            place = own.get(file, file.removeprefix("docs/"))
            relative = posixpath.relpath(place, posixpath.dirname(page) or ".")
            return f"{picture}[{said}]({relative}{anchor})"
        if not (ROOT / file).exists():
            return link[0]
        return f"{picture}[{said}]({repository}/blob/main/{file}{anchor})" if repository else said

    return _LINK.sub(there, text)


def address() -> str:
    """Where the sources are, as pyproject.toml says; empty while nowhere."""
    said = re.search(r'^repository = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return os.environ.get("TANDEM_REPOSITORY", said[1] if said else "").rstrip("/")
