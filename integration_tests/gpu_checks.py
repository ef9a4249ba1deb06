"""What a GPU must show: ``make test-gpu``, or ``python integration_tests/gpu_checks.py --part v2``.

Tiny models made on the spot, on the user's own vLLM, without pytest: greedy tokens against Hugging
Face, the engine's record against the replay under preemption, weight syncs, sleep, juniors of other
shapes, and the trainers that are installed. What teaches most comes first. Each part is ended
within four minutes and can be run alone; started again, what passed is not run again. See
``--list``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent / "benchmarks"
for folder in (HERE, BENCHMARKS):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from parts import LIMIT, Part, main  # noqa: E402
from results import Results, Table  # noqa: E402

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    # Functions are sent to the engine's worker, which finds them by name.
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
ON_A_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
Engines = Callable[[bool], list[Any]]
"""What a part checks, by whether it is at toy size."""

_V2 = (("v2", "lockstep"), ("v2", "speculative"))
_FIRST = (*_V2, ("v1", "lockstep"))
"""Runners and modes, vLLM's choice on a GPU first."""


def prepare(toy: bool) -> None:
    """The environment of all engines."""
    for name, value in {**ENVIRONMENT, **(ON_A_CPU if toy else {})}.items():
        os.environ.setdefault(name, value)
    path = [str(HERE), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in path if part)


def _as_users(
    toy: bool, *pairs: tuple[str, str], captured_toy: bool = True, **fields: str
) -> list[Any]:
    """Engines of these runners and modes as users have them: bfloat16, all of vLLM's graphs.

    captured_toy: whether those of toy size have the stand-in for CUDA graphs.
    """
    from support.gpu.engines import Asked

    graphs = "FULL_AND_PIECEWISE" if captured_toy or not toy else "eager"
    dtype = "float32" if toy else "bfloat16"
    return [Asked(runner, mode, graphs, dtype, **fields) for runner, mode in pairs]


def _exact(runner: str, mode: str, toy: bool) -> list[Any]:
    """Engines in float32 under each kind of graphs."""
    from support.gpu.engines import Asked

    kinds = ["eager", "FULL_AND_PIECEWISE", *([] if toy else ["PIECEWISE"])]
    return [Asked(runner, mode, graphs, "float32") for graphs in kinds]


def _juniors(toy: bool) -> list[Any]:
    names = ("other", "deeper")
    each = [_as_users(toy, *_FIRST, captured_toy=False, junior=junior) for junior in names]
    return [asked for engines in each for asked in engines]


def _adapted(toy: bool) -> list[Any]:
    from support.gpu.engines import Asked

    kinds = [("eager", "float32")]  # vLLM's kernels for adapters on a CPU cannot be captured
    if not toy:
        kinds += [("PIECEWISE", "float32"), ("FULL_AND_PIECEWISE", "bfloat16")]
    return [
        Asked(runner, "lockstep", *kind, junior="senior")
        for runner in ("v1", "v2")
        for kind in kinds
    ]


def _part(
    name: str, purpose: str, check: str, engines: Engines | None = None, limit: float = LIMIT
) -> Part:
    """check: ``module:function`` in :mod:`support.gpu`, imported in the part's own process."""

    def measure(results: Results, toy: bool) -> None:
        prepare(toy)
        module, _, function = check.partition(":")
        run = getattr(importlib.import_module(f"support.gpu.{module}"), function)
        run(results, toy, *([] if engines is None else [engines(toy)]))

    return Part(name, purpose, measure, partial(_table, purpose.partition(":")[0]), limit)


def _table(title: str, content: Mapping[str, Any]) -> Table:
    from support.gpu.cases import check_table

    return check_table(title, content)


PARTS = [
    _part(
        "default",
        "every mode as users have it: bfloat16 under all of vLLM's CUDA graphs",
        "engine_checks:check_engines",
        lambda toy: _as_users(toy, *_FIRST),
    ),
    _part(
        "waits",
        "that the host never waits for the device in tandem's part of a step",
        "engine_checks:check_waits",
        lambda toy: _as_users(toy, *_V2),
        limit=150,
    ),
    _part(
        "sleep",
        "sleep at levels 1 and 2",
        "sleep_checks:check_sleep",
        lambda toy: _as_users(toy, *_FIRST, captured_toy=False),
        limit=220,
    ),
    _part("juniors", "juniors of other shapes", "engine_checks:check_juniors", _juniors),
    _part("verl", "two steps of verl's trainer", "trainer_checks:check_verl"),
    _part(
        "tp2",
        "two GPUs by tensor parallelism, beside a wider junior",
        "engine_checks:check_tensor_parallel",
        # The stand-in for CUDA graphs is of one process.
        lambda toy: _as_users(toy, *_V2, captured_toy=False, junior="deeper"),
    ),
    *(
        _part(
            "speculative" if mode == "speculative" else runner,
            f"{mode} on Model Runner {runner.upper()} in float32, eager and under CUDA graphs",
            "engine_checks:check_engines",
            partial(_exact, runner, mode),
        )
        for runner, mode in _FIRST
    ),
    _part(
        "lora",
        "a senior with an adapter (LoRA), whose junior is its base",
        "engine_checks:check_lora",
        _adapted,
    ),
    _part("openrlhf", "two steps of OpenRLHF's trainer", "trainer_checks:check_openrlhf"),
]

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve(), str(__doc__).splitlines()[0], PARTS))
