"""What a run ends with: the page of its rollouts, and commands that go on from here."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from report import ReportError
from train import Paths, Training

_TANDEM = Path(sys.executable).with_name("tandem")
"""The command, installed beside this Python."""


def write_page(paths: Paths) -> Path:
    """Writes the page of the run's rollouts and returns it.

    Raises:
        ReportError: the page could not be written.
    """
    page = paths.rollouts.with_suffix(".html")
    command = [_TANDEM, "view", paths.rollouts, "--tokenizer", paths.checkpoint, "--out", page]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise ReportError(f"The page of the rollouts was not written: {done.stderr.strip()}")
    return page


def next_commands(
    paths: Paths, training: Training, page: Path | None, real: bool = False
) -> list[str]:
    """What to look at and to try next, line by line; page: None where no junior wrote along."""
    run = [sys.executable, Path(__file__).with_name("run.py"), *(["--real"] if real else [])]
    if page is None:
        return [
            "Next, the same in tandem:",
            f"  {_line(*run, '--out', str(paths.out) + '-tandem')}",
        ]
    team = paths.out / "team.jsonl"
    length = training.max_prompt_length + training.max_response_length
    rollout = _line(
        *(_TANDEM, "rollout", "--senior", paths.checkpoint, "--junior", paths.out / "model"),
        *("--problems", paths.out / "data" / "evaluation.parquet", "--out", team),
        *("--max-tokens", training.max_response_length, "--partner-logprobs"),
        *("--engine", "dtype=float32", "--engine", f"max_model_len={length}"),
        *("--engine", "gpu_memory_utilization=0.1", "--engine", "enforce_eager=true"),
    )
    return [
        f"Every response of the training, by author: open {page} in a browser.",
        "Next, derive again who wrote each token and compare it with what was recorded:",
        f"  {_line(_TANDEM, 'replay', paths.rollouts)}",
        "Let the team answer new problems, and see what either model makes of each token:",
        f"  {rollout}",
        f"  {_line(_TANDEM, 'view', team)}",
        "Train without the junior, to compare:",
        f"  {_line(*run, '--solo', '--out', str(paths.out) + '-solo')}",
    ]


def _line(*parts: object) -> str:
    """A command as a shell reads it."""
    return shlex.join(map(str, parts))
