"""Recipes run with trainers that only keep their arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPE = EXAMPLES.parent / "tandem_plugin" / "lab" / "recipe.sh"


def fake_environment(tmp_path: Path) -> dict[str, str]:
    """The variables of an environment whose trainers keep their arguments, and fail with 9.

    tmp_path: a folder, which gets the programs, some problems, and the file ``arguments``.
    """
    real = sys.executable
    kept = tmp_path / "arguments"
    keeps = f"printf '%s\\n' \"$@\" >{kept}; exit 9"
    own = "*protocols|*choose_problems*"
    programs = {
        "python": f'case $2 in {own}) exec {real} "$@" ;; pip) echo a==1; exit ;; esac\n'
        f"case $1 in -m) {keeps} ;; -c) exit 1 ;; esac",
        "accelerate": keeps,
        "tandem": f'case "$*" in "path recipe") echo {RECIPE}; exit ;; esac\n'
        f"case $1 in data) printf '%s\\n' \"$@\" >{tmp_path}/prepared; exit 8 ;; esac\necho given",
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    problems = tmp_path / "some problems"
    problems.write_text("one")
    return {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{EXAMPLES.parent}:{EXAMPLES.parent / 'adapters'}",
        "GPUS": "1",
        "OUT": str(tmp_path / "run"),
        "TRAIN": str(problems),
        "RAY_TMPDIR": str(tmp_path),
    }


def run_recipe(
    trainer: str, environment: Mapping[str, str], *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A trainer's recipe with these arguments, run to its end."""
    return subprocess.run(
        ["bash", str(EXAMPLES / trainer / "train.sh"), *arguments], env=environment, cwd=cwd,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
