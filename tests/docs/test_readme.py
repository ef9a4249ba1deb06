"""README: short, and what it says to type is what the tests of trainers type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from readme import README, ROOT, command_with_flag, one_flag
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.recipes.settings import Recipe
from tandem_plugin.lab.recipes.stacks import STACKS
from tandem_plugin.training.command import split_arguments


def test_readme_is_read_in_three_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert len(text.split()) <= 900


@pytest.mark.parametrize("trainer", STACKS)
def test_one_flag_is_the_same_on_the_page_of_tasks(trainer: str) -> None:
    assert one_flag(trainer) == one_flag(trainer, ROOT / "docs" / "tasks.md") != []


@pytest.mark.parametrize("trainer", ["openrlhf", "skyrl"])
def test_command_with_one_flag_is_tandem_by_word(trainer: str) -> None:
    python, option, module, *flags = command_with_flag(trainer)
    assert (python, option, module.partition(".")[0]) == ("python", "-m", f"tandem_{trainer}")
    assert split_arguments(flags) == ({"schedule": "word"}, [])


def test_first_commands_are_those_that_init_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init", "verl", "--json"])
    commands = json.loads(done.stdout)["commands"]
    assert f"```bash\n{chr(10).join(commands)}\n```" in README.read_text(encoding="utf-8")
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert chr(10).join(commands[:2]) in page


def test_first_run_is_the_one_that_the_readme_describes() -> None:
    recipe = Recipe()
    said = (
        f"This trains {recipe.model.rpartition('/')[2]} on {str(recipe.problems).upper()}: "
        f"{recipe.steps} steps of {recipe.prompts} problems with {recipe.samples} responses of at "
        f"most {recipe.max_response} tokens."
    )
    assert said in README.read_text(encoding="utf-8")
