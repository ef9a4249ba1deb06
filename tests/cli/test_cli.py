from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from tandem_plugin import __version__
from tandem_plugin.cli import app


def test_version_is_printed():
    result = CliRunner().invoke(app, ["--version"])
    lines = result.output.splitlines()
    assert lines[:2] == [f"tandem-plugin {__version__}", f"Python {platform.python_version()}"]
    assert f"pydantic {version('pydantic')}" not in lines
    assert all(version(name) == found for name, found in map(str.split, lines[2:]))


def test_version_as_json():
    result = CliRunner().invoke(app, ["--version", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["version"] == __version__
    assert found["stack"]["Python"] == platform.python_version()


def test_version_imports_nothing_of_the_stack():
    code = (
        "import sys\n"
        "from tandem_plugin.cli import app\n"
        "app(['--version'], standalone_mode=False)\n"
        "heavy = ('torch', 'vllm', 'verl', 'openrlhf', 'trl', 'transformers')\n"
        "sys.exit(str([name for name in heavy if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_help_says_what_an_option_takes_in_plain_words():
    found = CliRunner().invoke(app, ["rollout", "--help"]).output
    assert "--samples, --n INTEGER" in found
    assert "--temperature NUMBER" in found
    assert "--senior [NAME=]PATH" in found
    found += CliRunner().invoke(app, ["data", "prepare", "--help"]).output
    assert "-o, --out PATH" in found
    assert not re.search(r"--\S+ <(?!stop|verl|paper)", found)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--memory", "24GB", "it must be a number"),
        ("--memory", "0", "it must be at least 0.1"),
        ("--max-model-len", "long", "it must be an integer"),
        ("--gpu-memory-utilization", "2", "it must be at most 1"),
    ],
)
def test_wrong_value_is_said_in_words_of_the_command(option: str, value: str, reason: str):
    found = CliRunner().invoke(app, ["plan", "--senior", "x/y", option, value])
    assert found.exit_code == 2
    assert f"Invalid value for '{option}': {reason}\n" in found.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_choice_is_said_in_words_of_the_command_alone(as_json: bool):
    result = CliRunner().invoke(app, ["path", "reward-vrl", *(["--json"] if as_json else [])])
    assert result.exit_code == 2
    assert "'reward-vrl' is not one of 'reward-verl'" in result.output
    assert "Value error" not in result.output


def test_help_of_rollout_reads_neither_data_nor_grading():
    code = (
        "import sys\n"
        "from tandem_plugin.cli import app\n"
        "app(['rollout', '--help'], standalone_mode=False)\n"
        "heavy = ('tandem_plugin.lab.data', 'tandem_plugin.grading', 'torch', 'vllm', 'sympy')\n"
        "sys.exit(str([name for name in sys.modules if name.startswith(heavy)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "--problems" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["--nope"],
        ["doctor", "--nope"],
        ["replay", "x", "--show", "-1"],
    ],
)
def test_wrong_command_line_ends_with_code_2(arguments: list[str]):
    plain = CliRunner().invoke(app, arguments)
    assert plain.exit_code == 2
    assert plain.stdout == ""
    assert "Error" in plain.stderr
    as_json = CliRunner().invoke(app, [*arguments, "--json"])
    assert as_json.exit_code == 2
    assert as_json.stderr == ""
    assert list(json.loads(as_json.stdout)) == ["error"]
