"""The study's use of `tandem eval`, `tandem compare` and `tandem report`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stages import StudyError

from real.problem_files import BENCHMARK
from real.size import RealSize

__all__ = ["BASE", "JUNIOR", "SCHEDULES", "compare", "evaluate", "report"]

BASE, JUNIOR = "taught", "junior"
SCHEDULES = ("step", "step-bernoulli")

_TANDEM = [sys.executable, "-c", "from tandem_plugin.cli import main; main()"]


def evaluate(
    size: RealSize,
    start: Path,
    junior: Path,
    seniors: Mapping[str, Path],
    problems: Path,
    out: Path,
) -> None:
    """All axes of the taught senior and every trained one, by one `tandem eval all`, which goes on
    from whatever a killed one left; at the temperature of training."""
    length = size.training.max_prompt_length + size.training.max_response_length
    engine = {
        "dtype": "float32",
        "enforce_eager": "true",
        "max_model_len": length,
        "max_num_seqs": size.max_num_seqs,
        "gpu_memory_utilization": 0.1,
    }
    _tandem(
        "eval",
        "all",
        *_each("--senior", {BASE: start, **seniors}),
        *("--junior", f"{JUNIOR}={junior}"),
        *("--benchmark", f"{BENCHMARK}={problems}"),
        *(part for name in SCHEDULES for part in ("--schedule", name)),
        *("--n", size.samples, "--team-n", size.samples, "--read", size.read),
        *("--temperature", 1.0, "--top-p", 1.0),
        *("--max-tokens", size.training.max_response_length),
        *("--frequent", size.frequent),
        *_each("--engine", engine),
        *("--out", out),
    )


def compare(size: RealSize, results: Path, seniors: Sequence[str], out: Path) -> None:
    """The paper's tables."""
    folders = [results / name for name in (BASE, *seniors)]
    _tandem("compare", *folders, "--k", 1, "--top", size.top, "--out", out, quiet=True)


def report(size: RealSize, results: Path, logs: Mapping[str, Path], out: Path) -> None:
    """One page of everything."""
    _tandem(
        "report",
        results,
        *("--title", "GRPO, KL-Reg and TRL in two notations"),
        *(part for name in (BASE, *logs) for part in ("--order", name)),
        *_each("--log", logs),
        *("--k", 1, "--top", size.top, "--out", out),
    )


def _each(option: str, values: Mapping[str, object]) -> list[str]:
    return [part for name, value in values.items() for part in (option, f"{name}={value}")]


def _tandem(*arguments: object, quiet: bool = False) -> None:
    """Runs the command in a process of its own, whose progress is seen in this one's terminal."""
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*_TANDEM, *map(str, arguments)],
        env=environment,
        stdout=subprocess.DEVNULL if quiet else None,
        check=False,
    )
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode != 0:
        raise StudyError(
            f"`tandem {arguments[0]}` ended with code {done.returncode}; it has said above why. "
            "The same command goes on from there."
        )
