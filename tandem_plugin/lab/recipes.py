"""What ``tandem init`` writes: a trainer's recipe, its settings, and the tested versions.

The files are those of ``examples/`` and ``constraints/`` in a checkout; a wheel holds them in
``tandem_plugin/lab/shipped`` (``force-include`` in pyproject.toml).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem_plugin._version import __version__
from tandem_plugin.errors import OutputError
from tandem_plugin.files import write_file

NEWEST_PYTHON = (3, 12)
"""The last Python that the constraint files were resolved for."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A trainer whose recipe is written, and how its environment is made.

    A further trainer is a row of :data:`RECIPES`, its ``examples/TRAINER/train.sh``, and both files
    among those that a wheel includes.
    """

    trainer: str
    stack: str
    """The name of its constraint file."""
    extras: str
    """The extras of tandem-plugin that its environment needs."""
    then: str = ""
    """A requirement that is installed afterwards, without its own."""
    least_python: tuple[int, int] = (3, 10)

    @property
    def sources(self) -> Mapping[str, str]:
        """What is written, by name, and from which file of a checkout."""
        return {
            "train.sh": f"examples/{self.trainer}/train.sh",
            "settings.sh": "examples/settings.sh",
            "constraints.txt": f"constraints/{self.stack}.txt",
        }

    @property
    def install(self) -> str:
        """The command that installs the trainer beside this package, in the written folder."""
        pip = "pip install --constraint constraints.txt"
        parts = ["pip install -U pip", f'{pip} "tandem-plugin[{self.extras}]=={__version__}"']
        if self.then:
            parts.append(f'{pip} --no-deps "{self.then}"')
        return " && ".join(parts)


RECIPES = {
    recipe.trainer: recipe
    for recipe in (
        Recipe("verl", "verl-vllm-0.29.0", "verl,math,eval"),
        Recipe("openrlhf", "openrlhf-vllm-0.29.0", "openrlhf,math,eval", then="openrlhf==0.11.2"),
        Recipe("trl", "trl-vllm-0.29.0", "trl,math,eval", least_python=(3, 11)),
        Recipe(
            "skyrl",
            "skyrl-vllm-0.30.0",
            "skyrl,math,eval",
            then="skyrl==0.4.0",
            least_python=(3, 12),
        ),
    )
}
"""By trainer."""


def write_recipe(recipe: Recipe, folder: Path) -> list[Path]:
    """Write a trainer's files to a folder, and return them.

    Raises :class:`OutputError` where one of them exists already, or cannot be written.
    """
    files = {folder / name: shipped(source) for name, source in recipe.sources.items()}
    if existing := [file.name for file in files if os.path.lexists(file)]:
        raise OutputError("init-file-exists", folder=folder, files=", ".join(existing))
    for file, source in files.items():
        write_file(file, source.read_text(encoding="utf-8"))
        if file.suffix == ".sh" and os.access(file, os.W_OK):
            file.chmod(file.stat().st_mode | 0o111)
    return list(files)


def shipped(source: str) -> Path:
    """A file of the wheel, or of the checkout that this package is part of."""
    package = Path(__file__).parent
    inside = package / "shipped" / source
    return inside if inside.exists() else package.parents[1] / source
