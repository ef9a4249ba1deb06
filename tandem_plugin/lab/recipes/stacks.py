"""What ``tandem init`` writes: a trainer's recipe and the tested versions of its packages.

The constraint files are those of a checkout; a wheel holds them in ``tandem_plugin/lab/shipped``
(``force-include`` in pyproject.toml).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tandem_plugin._version import __version__
from tandem_plugin.errors import OutputError
from tandem_plugin.files import write_file
from tandem_plugin.lab.recipes.settings import FILE, written

NEWEST_PYTHON = (3, 12)
"""The last Python that the constraint files were resolved for."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A trainer's environment, and how it is made.

    A further trainer is a row of :data:`STACKS`, its constraint file among those that a wheel
    includes, and a module of this package.
    """

    trainer: str
    name: str
    """The name of its constraint file."""
    extras: str
    """The extras of tandem-plugin that its environment needs."""
    then: str = ""
    """A requirement that is installed afterwards, without its own."""
    least_python: tuple[int, int] = (3, 10)

    @property
    def constraints(self) -> str:
        """Its constraint file, in a checkout."""
        return f"constraints/{self.name}.txt"

    @property
    def install(self) -> str:
        """The command that installs the trainer with this package, in the written folder."""
        pip = "pip install --constraint constraints.txt"
        parts = ["pip install -U pip", f'{pip} "tandem-plugin[{self.extras}]=={__version__}"']
        if self.then:
            parts.append(f'{pip} --no-deps "{self.then}"')
        return " && ".join(parts)


STACKS = {
    stack.trainer: stack
    for stack in (
        Stack("verl", "verl-vllm-0.29.0", "verl,math,eval"),
        Stack("openrlhf", "openrlhf-vllm-0.29.0", "openrlhf,math,eval", then="openrlhf==0.11.2"),
        Stack("trl", "trl-vllm-0.29.0", "trl,math,eval", least_python=(3, 11)),
        Stack(
            "skyrl",
            "skyrl-vllm-0.30.0",
            "skyrl,math,eval",
            then="skyrl==0.4.0",
            least_python=(3, 12),
        ),
    )
}
"""By trainer."""


def write_recipe(stack: Stack, folder: Path) -> list[Path]:
    """Write a trainer's recipe and constraints to a folder, and return their paths.

    The constraints are the stack's tested versions and :func:`own_pin`.

    Raises :class:`OutputError` where one of them exists already, or cannot be written.
    """
    texts = {
        folder / FILE: written(stack.trainer),
        folder / "constraints.txt": shipped(stack.constraints).read_text(encoding="utf-8")
        + own_pin(),
    }
    if existing := [file.name for file in texts if os.path.lexists(file)]:
        raise OutputError("init-file-exists", folder=folder, files=", ".join(existing))
    for file, text in texts.items():
        write_file(file, text)
    return list(texts)


def own_pin() -> str:
    """The lines of a constraint file that keep pip from taking this package from an index.

    Empty where it came from an index, is editable, or the place that it came from is gone.
    """
    try:
        origin = _origin(distribution("tandem-plugin"))
    except PackageNotFoundError:
        return ""
    if not origin:
        return ""
    return f"# Where this package was installed from: no index has it.\ntandem-plugin @ {origin}\n"


def _origin(package: Distribution) -> str:
    """The address that a package was installed from, by PEP 610; empty for an index."""
    record = json.loads(package.read_text("direct_url.json") or "{}")
    address = str(record.get("url", ""))
    place = urlsplit(address)
    if record.get("dir_info", {}).get("editable"):
        return ""
    if place.scheme == "file" and not Path(unquote(place.path)).exists():
        return ""
    if repository := record.get("vcs_info"):
        address = f"{repository['vcs']}+{address}@{repository['commit_id']}"
    if folder := record.get("subdirectory"):
        address += f"#subdirectory={folder}"
    return address


def shipped(source: str) -> Path:
    """A file of the wheel, or of the checkout that this package is part of."""
    package = Path(__file__).parents[1]
    inside = package / "shipped" / source
    return inside if inside.exists() else package.parents[1] / source
