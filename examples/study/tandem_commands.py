"""The study's use of `tandem eval`, `tandem compare` and `tandem report`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from methods import run_name
from size import Size
from stages import StudyError

BASE = "base"
SCHEDULES = ("step", "step-bernoulli")
TEMPERATURE, TOP_P = 0.6, 0.95

_TANDEM = [sys.executable, "-c", "from tandem_plugin.cli import main; main()"]


def evaluate(
    size: Size, model: Path, seniors: Mapping[str, Path], benchmarks: Mapping[str, Path], out: Path
) -> None:
    """All axes of the base and every trained senior, by one `tandem eval all`, which goes on from
    whatever a killed one left."""
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
        *_each("--senior", {BASE: model, **seniors}),
        *("--junior", f"{BASE}={model}"),
        *_each("--benchmark", benchmarks),
        *(part for name in SCHEDULES for part in ("--schedule", name)),
        *("--n", size.samples, "--team-n", size.team_samples, "--read", size.read),
        *("--temperature", TEMPERATURE, "--top-p", TOP_P),
        *("--max-tokens", size.training.max_response_length),
        *("--frequent", size.frequent),
        *_each("--engine", engine),
        *("--out", out),
    )


def compare(size: Size, results: Path, out: Path) -> None:
    """The paper's tables for each seed, and of the methods with their seeds pooled."""
    for seed in size.seeds:
        names = [BASE, *(run_name(method, seed) for method in size.methods)]
        _compare(size, results, names, [], out / f"seed-{seed}")
    if len(size.seeds) > 1:
        pools = [f"{method}={','.join(runs)}" for method, runs in _runs(size).items()]
        names = [BASE, *(name for runs in _runs(size).values() for name in runs)]
        _compare(size, results, names, pools, out / "pooled")


def report(size: Size, results: Path, logs: Mapping[str, Path], out: Path) -> None:
    """One page of everything."""
    names = [BASE, *(name for runs in _runs(size).values() for name in runs)]
    pools = _runs(size) if len(size.seeds) > 1 else {}
    _tandem(
        "report",
        results,
        *("--title", "GRPO, KL-Reg and TRL at toy scale"),
        *(part for name in names for part in ("--order", name)),
        *_each("--log", logs),
        *(p for method, runs in pools.items() for p in ("--pool", f"{method}={','.join(runs)}")),
        *("--k", 1, "--top", size.top, "--out", out),
    )


def _compare(
    size: Size, results: Path, names: Sequence[str], pools: Sequence[str], out: Path
) -> None:
    _tandem(
        "compare",
        *(results / name for name in names),
        *(part for pool in pools for part in ("--pool", pool)),
        *("--k", 1, "--top", size.top, "--out", out),
        quiet=True,
    )


def _runs(size: Size) -> dict[str, list[str]]:
    """The names of each method's trained seniors."""
    return {method: [run_name(method, seed) for seed in size.seeds] for method in size.methods}


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
