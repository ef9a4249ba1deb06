"""What a GPU must show: ``make test-gpu``, or ``python integration_tests/gpu_checks.py --part v2``.

Tiny models made on the spot, on the user's own vLLM, without pytest: greedy tokens against Hugging
Face, the engine's record against the replay under preemption, weight syncs, sleep, juniors of other
shapes, and the trainers that are installed. Each part takes less than eight minutes on an H100 and
can be run alone; started again, what passed is not run again. See ``--list``.
"""

from __future__ import annotations

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

from parts import Part, main  # noqa: E402
from results import Results  # noqa: E402
from table import Table  # noqa: E402

__all__ = ["PAGE", "PARTS"]

PAGE = HERE.parent / "docs" / "compatibility.md"

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


def prepare(toy: bool) -> None:
    """The environment of all engines."""
    for name, value in {**ENVIRONMENT, **(ON_A_CPU if toy else {})}.items():
        os.environ.setdefault(name, value)
    path = [str(HERE), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in path if part)


def _engines(runner: str, mode: str, results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_engines
    from support.gpu.engines import Asked

    prepare(toy)
    kinds = [("eager", "float32"), ("FULL_AND_PIECEWISE", "float32")]
    if not toy:
        kinds = [*kinds, ("PIECEWISE", "float32"), ("FULL_AND_PIECEWISE", "bfloat16")]
    check_engines(results, toy, [Asked(runner, mode, graphs, dtype) for graphs, dtype in kinds])


def _juniors(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_juniors
    from support.gpu.engines import Asked

    prepare(toy)
    graphs, dtype = ("eager", "float32") if toy else ("FULL_AND_PIECEWISE", "bfloat16")
    engines = [
        Asked(runner, mode, graphs, dtype, junior)
        for runner, mode in _ENGINES
        for junior in ("deeper", "other")
    ]
    check_juniors(results, toy, engines)


def _lora(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_lora
    from support.gpu.engines import Asked

    prepare(toy)
    kinds = [("eager", "float32")]  # vLLM's kernels for adapters on a CPU cannot be captured
    if not toy:
        kinds += [("PIECEWISE", "float32"), ("FULL_AND_PIECEWISE", "bfloat16")]
    engines = [
        Asked(runner, "lockstep", graphs, dtype, junior="senior")
        for runner in ("v1", "v2")
        for graphs, dtype in kinds
    ]
    check_lora(results, toy, engines)


def _sleep(results: Results, toy: bool) -> None:
    from support.gpu.engines import Asked
    from support.gpu.sleep_checks import check_sleep

    prepare(toy)
    graphs, dtype = ("eager", "float32") if toy else ("FULL_AND_PIECEWISE", "bfloat16")
    check_sleep(results, toy, [Asked(runner, mode, graphs, dtype) for runner, mode in _ENGINES])


def _verl(results: Results, toy: bool) -> None:
    from support.gpu.trainer_checks import check_verl

    prepare(toy)
    check_verl(results, toy)


def _openrlhf(results: Results, toy: bool) -> None:
    from support.gpu.trainer_checks import check_openrlhf

    prepare(toy)
    check_openrlhf(results, toy)


_ENGINES = (("v1", "lockstep"), ("v2", "lockstep"), ("v2", "speculative"))


def _table(title: str) -> Callable[[Mapping[str, Any]], Table]:
    def table(content: Mapping[str, Any]) -> Table:
        from support.gpu.cases import check_table

        return check_table(title, content)

    return table


PARTS = [
    Part(
        "v1",
        "lockstep on Model Runner V1, eager and under CUDA graphs",
        partial(_engines, "v1", "lockstep"),
        _table("Lockstep on Model Runner V1"),
    ),
    Part(
        "v2",
        "lockstep on Model Runner V2, eager and under CUDA graphs",
        partial(_engines, "v2", "lockstep"),
        _table("Lockstep on Model Runner V2"),
    ),
    Part(
        "speculative",
        "the speculative mode, eager and under CUDA graphs",
        partial(_engines, "v2", "speculative"),
        _table("The speculative mode"),
    ),
    Part("juniors", "juniors of other shapes", _juniors, _table("Juniors")),
    Part(
        "lora",
        "a senior with an adapter (LoRA), whose junior is its base",
        _lora,
        _table("LoRA"),
    ),
    Part("sleep", "sleep at levels 1 and 2", _sleep, _table("Sleep")),
    Part("verl", "two steps of verl's trainer", _verl, _table("verl")),
    Part("openrlhf", "two steps of OpenRLHF's trainer", _openrlhf, _table("OpenRLHF")),
]

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve(), str(__doc__).splitlines()[0], PARTS, PAGE))
