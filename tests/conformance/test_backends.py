"""The table of what each adapter can do is that of the documentation, and stands on what exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from backends import BACKENDS, Backend, Entry, Rejected, Runs, table

from tandem_plugin.errors import refusal_groups

ROOT = Path(__file__).parents[2]
ENTRIES = [(one, entry) for one in BACKENDS for entry in one.entries()]
CODES = {code for group in refusal_groups() for code in group["refusals"]}


def test_documentation_has_the_table() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert table() in page, f"print it by python {Path(__file__).with_name('backends.py')}"


def test_every_adapter_is_described() -> None:
    folders = {file.parent.name for file in (ROOT / "adapters").glob("*/__init__.py")}
    described = {one.one_flag.test.partition("/")[0] for one in BACKENDS}
    assert described == folders
    assert all(len(one.entries()) == len(Backend.TITLES) - 1 for one in BACKENDS)


@pytest.mark.parametrize(("backend", "entry"), ENTRIES)
def test_entry_stands_on_a_test_or_a_refusal(backend: Backend, entry: Entry) -> None:
    if isinstance(entry, Rejected):
        assert entry.code in CODES
    if isinstance(entry, Runs):
        file, _, name = entry.test.partition("::")
        tree = ast.parse((ROOT / "integration_tests" / "adapters" / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
