"""What a recipe prints at its end, typed as it stands there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.commands import ENGINE, run
from support.trainer_run import TrainerRun

EVALUATION = " ".join(["--n 2 --team-n 2 --max-tokens 24 --frequent 1", *ENGINE])
"""Sizes of the printed evaluation, for the recipe's ``EVAL``."""


def follow(trained: TrainerRun, out: Path, method: str) -> None:
    """Type the commands that a run of ``method`` printed, in its folder; look for what they leave.

    out: the run's results.
    """
    printed = trained.log.rsplit("Next:\n", 1)[1]
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  tandem ")]
    names = [command.split()[1] for command in commands]
    assert names == [*(["view"] if method == "tandem" else []), "eval", "report"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run(["bash", "-c", f"cd {trained.folder} && export PATH={path} && {' && '.join(commands)}"])
    if method == "tandem":
        assert (out / "rollouts.html").stat().st_size > 10_000
    assert (out / "results" / method / "solo" / "summary.json").exists()
    assert (out / "report" / "index.html").exists()
