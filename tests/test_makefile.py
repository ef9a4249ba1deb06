"""Every command of the Makefile can be planned: what it needs, a rule makes."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PHONY = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)
assert PHONY, "the Makefile names no commands"
COMMANDS = PHONY.group(1).replace("\\\n", " ").split()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_a_rule_for_all_that_it_needs(command: str) -> None:
    # This run may itself be make's: then its flags would reach the one here.
    flags = ("MAKE", "MFLAGS")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(flags)}
    planned = subprocess.run(
        ["make", "--dry-run", "VENV=.venv-of-nobody", command],
        cwd=PROJECT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout
