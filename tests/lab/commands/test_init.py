"""``tandem init``: what it says, and to whom."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem_plugin.cli import app
from tandem_plugin.lab.commands import init
from tandem_plugin.patching import versions


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No trainer is installed, and the folder is empty."""
    monkeypatch.setattr(versions, "installed_version", lambda name: None)
    monkeypatch.chdir(tmp_path)


def test_files_and_commands_are_said_as_text_and_as_json() -> None:
    plain = CliRunner().invoke(app, ["init", "verl"])
    assert plain.exit_code == 0
    assert plain.output.startswith("Wrote recipe.yaml and constraints.txt to tandem-verl.\n")
    as_json = CliRunner().invoke(app, ["init", "verl", "--out", "a folder", "--json"])
    found = json.loads(as_json.stdout)
    assert [Path(file).name for file in found["files"]] == [
        "recipe.yaml", "constraints.txt"
    ]  # fmt: skip
    assert shlex.split(found["commands"][0])[:2] == ["cd", "a folder"]
    assert plain.output.count("\n  ") == len(found["commands"]) == 3


def test_second_call_overwrites_nothing() -> None:
    assert CliRunner().invoke(app, ["init", "trl"]).exit_code == 0
    again = CliRunner().invoke(app, ["init", "trl"])
    assert again.exit_code == 1
    assert "already contains recipe.yaml, constraints.txt" in again.stderr


def test_unknown_trainer_is_told_which_there_are() -> None:
    found = CliRunner().invoke(app, ["init", "vrl"])
    assert found.exit_code == 2
    assert "'vrl' is not one of 'verl', 'openrlhf', 'trl', 'skyrl'" in found.stderr


def test_environment_of_another_trainer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        versions, "installed_version", lambda name: "0.9.1" if name == "verl" else None
    )
    assert "This environment has verl" in CliRunner().invoke(app, ["init", "trl"]).output
    assert "This environment" not in CliRunner().invoke(app, ["init", "verl"]).output


@pytest.mark.parametrize(
    ("trainer", "python", "said"),
    [
        ("trl", (3, 10), "3.11 to 3.12"),
        ("skyrl", (3, 11), "3.12"),
        ("verl", (3, 10), ""),
        ("verl", (3, 13), "3.10 to 3.12"),
    ],
)
def test_python_that_the_versions_are_not_for_is_named(
    monkeypatch: pytest.MonkeyPatch, trainer: str, python: tuple[int, int], said: str
) -> None:
    monkeypatch.setattr(init.sys, "version_info", python)
    output = CliRunner().invoke(app, ["init", trainer]).output
    assert ("The tested versions are for Python" in output) is bool(said)
    assert f"for Python {said}, and this one is" in output or not said


def test_home_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert CliRunner().invoke(app, ["init", "verl", "--out", "~/x"]).exit_code == 0
    assert (tmp_path / "home" / "x" / "recipe.yaml").exists()
    assert not (tmp_path / "~").exists()
