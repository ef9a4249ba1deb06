"""The source of a foreign library, read and not imported: a second instead of half a minute."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path


def source_of(module: str) -> str:
    """The source of an installed library's module."""
    library, *path = module.split(".")
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    file = Path(spec.submodule_search_locations[0]).joinpath(*path)
    return (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text()


def function_of(module: str, path: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """The definition of a module's function, or of a class's method: ``path`` is "Class.method"."""
    body = ast.parse(source_of(module)).body
    *owners, name = path.split(".")
    for owner in owners:
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == owner]
        assert classes, f"{module} has no class {owner}"
        body = classes[0].body
    functions = [
        node
        for node in body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
    ]
    assert functions, f"{module} has no {path}"
    return functions[0]
