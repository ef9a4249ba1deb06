from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from tandem_plugin import TandemConfig, schedules
from tandem_plugin.schedules import parameter_names

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


def readme_examples() -> list[str]:
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_replay_example_of_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (example,) = [code for code in readme_examples() if "TandemRules" in code]
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text('{"Once": 0, "Ġupon": 1, "Ġa": 2, "Ġtime": 3}', encoding="utf-8")
    names = {"TOKENIZER": tokenizer, "token_ids": [0, 1, 2, 3]}
    exec(compile(example, "README.md", "exec"), names)
    assert re.match(r"(0\.\d+|1\.0) \(Span\(start=0", capsys.readouterr().out)


def test_readme_lists_every_setting_and_parameter_that_a_user_may_set():
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    parameters = {name for schedule in schedules() for name in parameter_names(schedule)}
    # "mode" has one value so far, and "require" is for the adapters.
    assert listed == (set(TandemConfig.model_fields) | parameters) - {"mode", "require"}
