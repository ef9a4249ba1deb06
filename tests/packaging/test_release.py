"""What a release does, and what its dry run leaves undone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem_plugin.lab.recipes.stacks import STACKS

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / ".ci" / "release").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    jobs: dict[str, Any] = yaml.safe_load(text)["jobs"]
    return jobs


def test_workflow_started_by_hand_publishes_nothing(jobs: dict[str, Any]) -> None:
    """Every job but the first waits for one that runs in a release alone."""
    only_releases = {
        name for name, job in jobs.items() if job.get("if") == "github.event_name == 'release'"
    }
    assert only_releases == {"publish"}
    rest = {name: job.get("needs") for name, job in jobs.items() if name not in only_releases}
    assert rest == {"build": None, "site": "publish"}
    assert not {"id-token", "contents"} & set(jobs["build"].get("permissions", {}))
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"


def test_release_is_what_the_dry_run_built(jobs: dict[str, Any]) -> None:
    commands = [step.get("run", "") for step in jobs["build"]["steps"]]
    assert "make release PYTHON=python3" in commands
    assert any("${GITHUB_REF_NAME#v}" in command for command in commands)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert ".ci/release $(TOOLS)" in makefile
    assert "twine upload" not in SCRIPT + makefile


def test_dry_run_resolves_every_trainers_stack() -> None:
    (line,) = (line for line in SCRIPT.splitlines() if line.startswith("for trainer in "))
    assert line == f"for trainer in {' '.join(STACKS)}; do"


SCRIPTS = [".ci/run", ".ci/release", "examples/published/score.sh"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_that_is_sourced_leaves_the_shell_as_it_is(script: str, tmp_path: Path) -> None:
    """It would end the user's shell at its first error, or at the next one of their own."""
    typed = (
        f"source {ROOT / script}; echo $?; false; echo $UNSET; set -o | grep -c 'errexit.*on'; pwd"
    )
    done = subprocess.run(
        ["bash", "-c", typed], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == f"2\n\n0\n{tmp_path}\n"
    assert done.stderr == f"Run {ROOT / script} instead of sourcing it.\n"


def test_every_script_for_bash_is_among_them() -> None:
    folders = ("benchmarks", "constraints", "docker", "docs", "examples", "tandem_plugin")
    files = [*ROOT.glob(".ci/*"), *(f for name in folders for f in (ROOT / name).rglob("*.sh"))]
    for_bash = {
        str(file.relative_to(ROOT))
        for file in files
        if file.is_file() and file.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash")
    }
    assert for_bash == set(SCRIPTS)
