"""The project's addresses, all from the one in pyproject.toml, for the package's metadata."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PLACES = {
    "Repository": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}


class ProjectAddresses(MetadataHookInterface):
    """Hatchling's hook; ``repository`` is where the sources are, empty while nowhere."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"].rstrip("/")
        metadata["urls"] = {name: repository + path for name, path in PLACES.items() if repository}
