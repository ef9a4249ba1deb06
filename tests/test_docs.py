from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate_cli", DOCS / "generate_cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cli_page_is_what_the_commands_say(generator: Any):
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page(), (
        "docs/cli.md is out of date: run python docs/generate_cli.py"
    )


def test_concepts_page_explains_every_word_of_the_project():
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    words = "senior junior author authorship schedule boundary draw handoff span"
    assert [word for word in words.split() if f"**{word}**" not in text] == []


def test_example_of_the_concepts_page_runs(capsys: pytest.CaptureFixture[str]):
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, "docs/concepts.md", "exec"), {})
    assert capsys.readouterr().out.startswith("(Span(start=0, stop=")
