"""What a GPU must show: ``make test-gpu``, or ``python integration_tests/gpu_checks.py --part v2``.

Tiny models made on the spot, on the user's own vLLM, without pytest: greedy tokens against Hugging
Face, the engine's record against the replay under preemption, weight syncs, sleep, juniors of other
shapes, and the trainers that are installed. What teaches most comes first: the parts up to ``verl``
end within 25 minutes. Each part is ended within four minutes and can be run alone; started again,
what passed is not run again. See ``--list``.
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

__all__ = ["PARTS"]


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


def _asked(toy: bool, *pairs: tuple[str, str], **fields: str) -> list[Any]:
    """Engines of these runners and modes as users have them: bfloat16, all of vLLM's graphs."""
    from support.gpu.engines import Asked

    dtype = "float32" if toy else "bfloat16"
    return [Asked(runner, mode, "FULL_AND_PIECEWISE", dtype, **fields) for runner, mode in pairs]


def _default(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_engines

    prepare(toy)
    check_engines(results, toy, _asked(toy, *_FIRST))


def _waits(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_waits

    prepare(toy)
    check_waits(results, toy, _asked(toy, *_V2))


def _large(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_large

    prepare(toy)
    names = {part: f"{part} of Qwen3's vocabulary" for part in ("senior", "junior")}
    check_large(results, toy, _asked(toy, *_V2, **({} if toy else names)))


def _warm(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_warm_start

    prepare(toy)
    check_warm_start(results, toy, _asked(toy, ("v2", "lockstep")))


def _tensor_parallel(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_tensor_parallel
    from support.gpu.engines import Asked

    prepare(toy)
    engines = _asked(toy, *_V2, junior="deeper")
    if toy:  # the stand-in for CUDA graphs is of one process
        engines = [Asked(runner, mode, "eager", "float32", "deeper") for runner, mode in _V2]
    check_tensor_parallel(results, toy, engines)


def _engines(runner: str, mode: str, results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_engines
    from support.gpu.engines import Asked

    prepare(toy)
    kinds = ["eager", "FULL_AND_PIECEWISE", *([] if toy else ["PIECEWISE"])]
    check_engines(results, toy, [Asked(runner, mode, graphs, "float32") for graphs in kinds])


def _juniors(results: Results, toy: bool) -> None:
    from support.gpu.engine_checks import check_juniors
    from support.gpu.engines import Asked

    prepare(toy)
    graphs, dtype = ("eager", "float32") if toy else ("FULL_AND_PIECEWISE", "bfloat16")
    engines = [
        Asked(runner, mode, graphs, dtype, junior)
        for junior in ("other", "deeper")
        for runner, mode in _FIRST
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
    check_sleep(results, toy, [Asked(runner, mode, graphs, dtype) for runner, mode in _FIRST])


def _verl(results: Results, toy: bool) -> None:
    from support.gpu.trainer_checks import check_verl

    prepare(toy)
    check_verl(results, toy)


def _openrlhf(results: Results, toy: bool) -> None:
    from support.gpu.trainer_checks import check_openrlhf

    prepare(toy)
    check_openrlhf(results, toy)


_V2 = (("v2", "lockstep"), ("v2", "speculative"))
_FIRST = (*_V2, ("v1", "lockstep"))
"""Runners and modes, vLLM's choice on a GPU first."""


def _table(title: str) -> Callable[[Mapping[str, Any]], Table]:
    def table(content: Mapping[str, Any]) -> Table:
        from support.gpu.cases import check_table

        return check_table(title, content)

    return table


PARTS = [
    Part(
        "default",
        "every mode as users have it: bfloat16 under all of vLLM's CUDA graphs",
        _default,
        _table("As users have it"),
    ),
    Part(
        "waits",
        "that the host never waits for the device in tandem's part of a step",
        _waits,
        _table("The host does not wait"),
        limit=150,
    ),
    Part(
        "large",
        "batches above the largest CUDA graph, with 151,936 token ids",
        _large,
        _table("Large batches and a real vocabulary"),
        limit=200,
    ),
    Part(
        "warm",
        "a second start, which loads what the first one compiled",
        _warm,
        _table("A warm start"),
        limit=200,
    ),
    Part("sleep", "sleep at levels 1 and 2", _sleep, _table("Sleep"), limit=220),
    Part("juniors", "juniors of other shapes", _juniors, _table("Juniors")),
    Part("verl", "two steps of verl's trainer", _verl, _table("verl")),
    Part(
        "tp2",
        "two GPUs by tensor parallelism, beside a wider junior",
        _tensor_parallel,
        _table("Tensor parallelism"),
    ),
    Part(
        "v2",
        "lockstep on Model Runner V2 in float32, eager and under CUDA graphs",
        partial(_engines, "v2", "lockstep"),
        _table("Lockstep on Model Runner V2"),
    ),
    Part(
        "speculative",
        "the speculative mode in float32, eager and under CUDA graphs",
        partial(_engines, "v2", "speculative"),
        _table("The speculative mode"),
    ),
    Part(
        "v1",
        "lockstep on Model Runner V1 in float32, eager and under CUDA graphs",
        partial(_engines, "v1", "lockstep"),
        _table("Lockstep on Model Runner V1"),
    ),
    Part(
        "lora",
        "a senior with an adapter (LoRA), whose junior is its base",
        _lora,
        _table("LoRA"),
    ),
    Part("openrlhf", "two steps of OpenRLHF's trainer", _openrlhf, _table("OpenRLHF")),
]

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve(), str(__doc__).splitlines()[0], PARTS))
