"""The project's addresses for the package's metadata, derived from the one in pyproject.toml."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PLACES = {
    "Repository": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}

_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!\w+:|#)([^)]+)\)")
"""A relative link of a Markdown page, or, with a "!" before it, a picture."""


def absolute_links(text: str, repository: str) -> str:
    """A page of the root folder with absolute links, to be read outside the repository."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}{repository}/{kind}/main/{link[2]})"

    return _LINK.sub(absolute, text) if repository else text


class ProjectAddresses(MetadataHookInterface):
    """Hatchling's hook; ``repository`` is the repository's address, empty until it is known.

    ``TANDEM_REPOSITORY`` overrides it, as for the site.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        given = os.environ.get("TANDEM_REPOSITORY") or self.config["repository"]
        repository = given.rstrip("/")
        metadata["urls"] = {name: repository + path for name, path in PLACES.items() if repository}
        page = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = absolute_links(page, repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
