"""The imports of the project: no circle, no arrow to a higher layer, and who imports vLLM."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

_TABLE = re.compile(r"^\| .* \| (`.*`) \|$", re.MULTILINE)


def part_at(path: str) -> str:
    """The part of the project at a path of the page."""
    names = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(names[1:]) or names[0]


def layers_of_the_page() -> tuple[tuple[str, ...], ...]:
    """The table in docs/architecture.md, from the bottom up.

    A part imports from itself and from the rows below its own, never from its own row or a higher
    one.
    """
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Layers")[2].partition("\n## ")[0]
    rows = [re.findall(r"`([^`]+)`", cells) for cells in _TABLE.findall(section)]
    return tuple(tuple(map(part_at, row)) for row in reversed(rows))


LAYERS = layers_of_the_page()

Graph = Mapping[str, frozenset[str]]


class Import(NamedTuple):
    name: str
    is_typing: bool
    """Whether it is for type checkers only."""


def modules(folder: Path) -> dict[str, Path]:
    """The file of each module of a package, by its dotted name."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.AST, package: list[str], *, typing: bool = False) -> Iterator[Import]:
    """Every name that a module imports, in functions as well.

    package: the parts of the package's name that relative imports start from. typing: whether the
    tree is for type checkers only, under ``if TYPE_CHECKING``.
    """
    if isinstance(tree, ast.Import):
        yield from (Import(alias.name, typing) for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        base = package[: len(package) - tree.level + 1] if tree.level else []
        whole = ".".join([*base, *([tree.module] if tree.module else [])])
        yield from (Import(f"{whole}.{alias.name}", typing) for alias in tree.names)
    elif isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        for part in tree.body:
            yield from imported(part, package, typing=True)
        for part in tree.orelse:
            yield from imported(part, package, typing=typing)
    else:
        for part in ast.iter_child_nodes(tree):
            yield from imported(part, package, typing=typing)


def imports_of(module: str, file: Path) -> Iterator[Import]:
    package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    yield from imported(ast.parse(file.read_text(encoding="utf-8")), package)


def import_graph(files: Mapping[str, Path], *, with_types: bool) -> Graph:
    """Which of these modules each of them imports.

    with_types: whether imports for type checkers count within a folder; between folders they always
    do.
    """
    graph = {}
    for module, file in files.items():
        found = set()
        for name, is_typing in imports_of(module, file):
            while name not in files and "." in name:
                name = name.rpartition(".")[0]  # a function or class of the module
            is_near = name in files and files[name].parent == file.parent
            if with_types or not (is_typing and is_near):
                found.add(name)
        graph[module] = frozenset(found & files.keys() - {module})
    return graph


def folder_graph(graph: Graph, folder: str) -> Graph:
    """The arrows between what lies in a folder: its files, and the folders in it as a whole."""

    def place(module: str) -> str | None:
        if module == folder:
            return f"{module}.__init__"
        inside = module.removeprefix(f"{folder}.")
        return f"{folder}.{inside.partition('.')[0]}" if inside != module else None

    found: dict[str, set[str]] = {}
    for module, others in graph.items():
        if (start := place(module)) is not None:
            ends = {end for other in others if (end := place(other)) is not None}
            found.setdefault(start, set()).update(ends - {start})
    return {start: frozenset(ends) for start, ends in found.items()}


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
def files() -> dict[str, Path]:
    """The file of each module of the plugin, the lab and the adapters."""
    found = {}
    for folder in (ROOT / "tandem_plugin", *sorted((ROOT / "adapters").iterdir())):
        found.update(modules(folder))
    return found


@pytest.fixture(scope="module")
def graph(files: dict[str, Path]) -> Graph:
    return import_graph(files, with_types=True)


def test_no_modules_import_each_other_in_a_circle(files: dict[str, Path]) -> None:
    """Within a folder, files may name each other's classes to type checkers."""
    graph = import_graph(files, with_types=False)
    list(TopologicalSorter(graph).static_order())  # raises an error that names the circle


def test_no_folders_import_each_other_in_a_circle(files: dict[str, Path]) -> None:
    graph = import_graph(files, with_types=False)
    folders = [module for module, file in files.items() if file.name == "__init__.py"]
    assert len(folders) > 20
    for folder in folders:
        list(TopologicalSorter(folder_graph(graph, folder)).static_order())


def test_a_circle_through_two_folders_is_found_where_no_file_is_in_one() -> None:
    """As a -> b.x, b.y -> c.z, c.w -> a: three arrows between folders."""
    arrows = {"p.a": {"p.b.x"}, "p.b.y": {"p.c.z"}, "p.c.w": {"p.a"}, "p": {"p.a"}}
    graph = {module: frozenset(others) for module, others in arrows.items()}
    list(TopologicalSorter(graph).static_order())
    with pytest.raises(CycleError):
        list(TopologicalSorter(folder_graph(graph, "p")).static_order())


def test_files_of_one_folder_may_name_each_other_to_type_checkers_only(tmp_path: Path) -> None:
    """Between two folders such an import counts like any other."""
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
    texts = {
        "p.__init__": "",
        "p.a": types + "from p.b import B",
        "p.b": "from p import a",
        "p.c": types + "from p.q.d import D",
        "p.q.__init__": "",
        "p.q.d": "def f():\n    import p.c",
    }
    for name, text in texts.items():
        file = tmp_path / (name.replace(".", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    graph = import_graph(modules(tmp_path / "p"), with_types=False)
    assert (graph["p.a"], graph["p.b"]) == (frozenset(), {"p.a"})
    assert (graph["p.c"], graph["p.q.d"]) == ({"p.q.d"}, {"p.c"})


def test_every_import_points_to_a_lower_layer(graph: Graph) -> None:
    assert not upward_arrows(graph)


def test_every_adapter_has_the_same_files_for_the_same_duties() -> None:
    """SkyRL's needs nothing at its loss."""
    for adapter in ("tandem_verl", "tandem_openrlhf", "tandem_trl", "tandem_skyrl"):
        files = {file.name for file in (ROOT / "adapters" / adapter).rglob("*.py")}
        duties = {"settings.py", "start.py", "rollouts.py", "batch.py", "loss.py"}
        assert duties - files <= ({"loss.py"} if adapter == "tandem_skyrl" else set()), adapter


def test_every_part_has_its_place_among_the_layers(graph: Graph) -> None:
    placed = [part for parts in LAYERS for part in parts]
    assert sorted(placed) == sorted({part_of(module) for module in graph})


def test_only_the_engine_imports_vllm(files: dict[str, Path]) -> None:
    """In functions and for type checkers as well; everything else takes vLLM's names from it."""
    importers = {
        module
        for module, file in files.items()
        if any(name.partition(".")[0] == "vllm" for name, _ in imports_of(module, file))
    }
    assert {part_of(module) for module in importers} == {"engine"}


IMPORTERS = {
    "verl": "tandem_verl",
    "openrlhf": "tandem_openrlhf",
    "trl": "tandem_trl",
    "skyrl": "tandem_skyrl",
}
"""Each trainer, and the only folder that imports it."""


@pytest.mark.parametrize("framework", IMPORTERS)
def test_only_its_adapter_imports_a_trainer(framework: str, files: dict[str, Path]) -> None:
    importers = {
        module
        for module, file in files.items()
        if any(name.partition(".")[0] == framework for name, _ in imports_of(module, file))
    }
    assert {part_of(module) for module in importers} == {IMPORTERS[framework]}


def names_of_the_core(adapter: Path) -> set[tuple[str, str]]:
    """What an adapter imports from the plugin by name, each with its module."""
    return {
        (statement.module, alias.name)
        for file in adapter.rglob("*.py")
        for statement in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        if statement.module.partition(".")[0] == "tandem_plugin"
        for alias in statement.names
    }


MOST_NAMES = {"tandem_openrlhf": 25, "tandem_skyrl": 19, "tandem_trl": 24, "tandem_verl": 25}
MOST_NAMES_OF_ALL = 41


def test_adapters_need_few_names_of_the_core() -> None:
    """An adapter describes its trainer, and calls methods of what the core gives it.

    The numbers are those of today: lower them when an import goes, do not raise them.
    """
    names = {
        folder.name: names_of_the_core(folder) for folder in sorted((ROOT / "adapters").iterdir())
    }
    assert {adapter: len(of_adapter) for adapter, of_adapter in names.items()} == MOST_NAMES
    assert len(set().union(*names.values())) == MOST_NAMES_OF_ALL
