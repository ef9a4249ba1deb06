"""The notebook from a rollout file to a table, run from top to bottom: it prints what it shows."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "rollouts.ipynb"
CELLS = [
    cell
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


class HTML:
    """In place of IPython's, where there is no IPython."""

    def __init__(self, data: str) -> None:
        self.data = data


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    pytest.importorskip("sympy", reason="the grader needs it")
    display = ModuleType("IPython.display")
    display.HTML = HTML  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(NOTEBOOK.parent)
    return {}


def test_notebook_has_ten_cells():
    assert len(CELLS) == 10


def test_each_cell_prints_the_output_that_is_stored(namespace: dict[str, Any]):
    for cell in CELLS:
        stored = {output["output_type"]: output for output in cell["outputs"]}
        printed, value = ran("".join(cell["source"]), namespace)
        assert printed == "".join(stored.get("stream", {}).get("text", []))
        html = stored.get("execute_result", {}).get("data", {}).get("text/html")
        assert (value.data if isinstance(value, HTML) else None) == (html and "".join(html))


def ran(source: str, namespace: dict[str, Any]) -> tuple[str, Any]:
    """What a cell printed, and the value of its last line where that is an expression."""
    *lines, last = ast.parse(source).body
    is_value = isinstance(last, ast.Expr)
    body = ast.Module([*lines] if is_value else [*lines, last], [])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(body, "a cell", "exec"), namespace)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "a cell", "eval"), namespace)
    return printed.getvalue(), value
