from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tandem_plugin import __version__
from tandem_plugin.cli import app

COMMANDS = ["doctor", "boundaries", "replay", "plugins", "view", "rollout", "grade", "path"]
COMMANDS += ["compare", "report"]


def test_version_is_printed():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"tandem-plugin {__version__}\n")


def test_version_as_json():
    result = CliRunner().invoke(app, ["--version", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"version": __version__}


def test_version_of_the_module_run_in_a_process_of_its_own():
    code = "from tandem_plugin.cli import main; main()"
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"tandem-plugin {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_the_command_and_its_json_option(command: str):
    assert command in CliRunner().invoke(app, ["--help"]).output
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "--json" in result.output


def test_help_of_rollout_reads_neither_data_nor_grading():
    code = (
        "import sys\n"
        "from tandem_plugin.cli import app\n"
        "app(['rollout', '--help'], standalone_mode=False)\n"
        "heavy = ('tandem_plugin.data', 'tandem_plugin.grading', 'torch', 'vllm', 'sympy')\n"
        "sys.exit(str([name for name in sys.modules if name.startswith(heavy)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "--problems" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [["nope"], ["--nope"], ["doctor", "--nope"], ["boundaries"], ["replay", "x", "--show", "-1"]],
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
