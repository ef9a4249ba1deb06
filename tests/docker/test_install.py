"""The image of each trainer: the packages that docker/install.sh asks a stand-in for uv for."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tandem_plugin.lab.recipes.stacks import STACKS

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture
def install(tmp_path: Path):
    """Run docker/install.sh; its exit code, its message, and the commands of uv."""
    log = tmp_path / "log"
    commands = {
        "uv": f'echo "$*" >> {log}',
        "tandem": 'echo "/there/$2"',
        "python": f"echo {tmp_path}",
    }
    for name, body in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)

    def run(*arguments: str) -> tuple[int, str, list[str]]:
        log.unlink(missing_ok=True)
        done = subprocess.run(
            ["sh", "docker/install.sh", *arguments],
            cwd=ROOT,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr, log.read_text().splitlines() if log.exists() else []

    return run


@pytest.mark.parametrize("trainer", STACKS)
def test_image_has_the_versions_that_init_writes(install, trainer: str, tmp_path: Path):
    code, message, commands = install(trainer, "")
    assert (code, message) == (0, "")
    stack = STACKS[trainer]
    first, *then = commands
    assert f"--constraint {stack.constraints}" in first
    assert first.endswith(f" .[{stack.extras}]")
    assert [command.split()[-2:] for command in then] == (
        [["--no-deps", stack.then.partition("==")[0]]] if stack.then else []
    )
    assert all(re.findall(r"--constraint (\S+)", c) == [stack.constraints] for c in then)
    pth = tmp_path / "without_flash_attn.pth"
    assert pth.exists() == bool(stack.then), "where flash-attn is not installed"


def test_image_of_another_vllm_takes_its_constraints_and_overrides(install):
    _, _, (command,) = install("verl", "0.32.0")
    assert "--constraint constraints/verl-vllm-0.32.0.txt" in command
    assert "--override constraints/overrides-vllm-0.32.0.txt" in command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verl", "0.1"), "VLLM=0.1 is not tested with verl"),
        (("tlr", ""), "TRAINER=tlr is none of"),
    ],
)
def test_wrong_argument_installs_nothing(install, arguments: tuple[str, str], said: str):
    code, message, commands = install(*arguments)
    assert (code, commands) == (2, [])
    assert said in message


def test_image_is_labelled_and_has_what_its_build_reads():
    labels = dict(re.findall(r'(org\.opencontainers\.image\.[\w.]+)="([^"]+)"', DOCKERFILE))
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    (base,) = re.findall(r"^FROM (\S+)@sha256:", DOCKERFILE, re.MULTILINE)
    assert labels["org.opencontainers.image.base.name"] == f"docker.io/{base}"
    sent = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    read = (
        "docker",
        "constraints",
        "tandem_plugin",
        "adapters",
        "pyproject.toml",
        "hatch_build.py",
    )
    assert set(read) <= set(sent)
