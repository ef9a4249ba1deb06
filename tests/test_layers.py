"""The imports of the project: no circle, and no arrow from a lower layer to a higher one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

LAYERS = (
    # From the bottom up. A part imports from itself and from the rows below its own, never from
    # its own row or a higher one. The plugin itself and its adapters stand below the lab.
    ("_version", "_interrupts"),
    ("errors",),
    ("files",),
    ("progress", "patching", "schedules", "boundaries", "_draws", "authorship"),
    ("seeds", "request", "_replay", "plugins", "spans"),
    ("config",),
    ("rules",),
    ("tandem_plugin",),  # the public names
    ("engine", "grading"),
    ("training",),
    ("tandem_verl", "tandem_openrlhf", "tandem_trl", "terminal"),
    ("lab",),  # its description
    ("lab.planning", "lab.data", "lab.protocols"),
    ("lab.rollouts",),
    ("lab.viewer",),
    ("lab.evaluation",),
    ("lab.commands",),
    ("cli",),
    ("__main__",),
)

Graph = Mapping[str, frozenset[str]]


def modules(folder: Path) -> dict[str, Path]:
    """The file of each module of a package, by its dotted name."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.Module, package: list[str]) -> Iterator[str]:
    """Every name that a module imports, in functions and for type checkers as well.

    package: the parts of the package's name that relative imports start from.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            whole = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{whole}.{alias.name}" for alias in node.names)


def import_graph(files: Mapping[str, Path]) -> Graph:
    """Which of these modules each of them imports."""
    graph = {}
    for module, file in files.items():
        package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
        found = set()
        for name in imported(ast.parse(file.read_text(encoding="utf-8")), package):
            while name not in files and "." in name:
                name = name.rpartition(".")[0]  # a function or class of the module
            found.add(name)
        graph[module] = frozenset(found & files.keys() - {module})
    return graph


def part_of(module: str) -> str:
    """The part of the project that a module belongs to, as the table of layers calls it."""
    package, *rest = module.split(".")
    if package != "tandem_plugin":
        return package
    depth = 2 if rest[:1] == ["lab"] else 1
    return ".".join(rest[:depth]) or package


def upward_arrows(graph: Graph) -> list[str]:
    """Every import that does not point to a lower layer, or within one part, in words."""
    level = {part: row for row, parts in enumerate(LAYERS) for part in parts}
    return [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in sorted(others)
        if part_of(module) != part_of(other) and level[part_of(module)] <= level[part_of(other)]
    ]


@pytest.fixture(scope="module")
def graph() -> Graph:
    files = {}
    for folder in (ROOT / "tandem_plugin", *sorted((ROOT / "adapters").iterdir())):
        files.update(modules(folder))
    return import_graph(files)


def test_no_modules_import_each_other_in_a_circle(graph: Graph) -> None:
    list(TopologicalSorter(graph).static_order())  # raises an error that names the circle


def test_every_import_points_to_a_lower_layer(graph: Graph) -> None:
    assert not upward_arrows(graph)


def test_every_adapter_has_the_same_files_for_the_same_duties() -> None:
    for adapter in ("tandem_verl", "tandem_openrlhf", "tandem_trl"):
        files = {file.name for file in (ROOT / "adapters" / adapter).rglob("*.py")}
        duties = {"settings.py", "refusals.py", "rollouts.py", "batch.py", "loss.py"}
        assert not duties - files, adapter


def test_every_part_has_its_place_among_the_layers(graph: Graph) -> None:
    placed = [part for parts in LAYERS for part in parts]
    assert sorted(placed) == sorted({part_of(module) for module in graph})


IMPORTERS = {
    "vllm": {
        "tandem_plugin.engine",
        "tandem_plugin.lab.rollouts.engine",  # starts one
        "tandem_plugin.lab.rollouts.generate",  # asks it
        "tandem_plugin.cli.doctor",  # tries it
        "tandem_trl.lora",  # sends it adapters
    },
    "verl": {"tandem_verl"},
    "openrlhf": {"tandem_openrlhf"},
    "trl": {"tandem_trl"},
}
"""The only modules and folders that import a framework, for type checkers as well."""


@pytest.mark.parametrize("framework", IMPORTERS)
def test_a_framework_is_imported_in_these_places_alone(framework: str) -> None:
    found = set()
    for folder in (ROOT / "tandem_plugin", *sorted((ROOT / "adapters").iterdir())):
        for module, file in modules(folder).items():
            statement = rf"^\s*(?:from|import) {framework}\b"
            if re.search(statement, file.read_text(encoding="utf-8"), re.MULTILINE):
                inside = (
                    place for place in IMPORTERS[framework] if f"{module}.".startswith(f"{place}.")
                )
                found.add(next(inside, module))
    assert found == IMPORTERS[framework]
