"""What tandem costs on a GPU: ``make bench-gpu``, or ``python benchmarks/gpu.py --part 1.7b``.

Throughput of the senior alone, in lockstep and speculative at batch 1, 16, 64 and 256, memory,
weight syncs and sleep, with random models at the widths of Qwen3 made on the spot.
Each part is ended within four minutes and can be run alone; started again, it goes on where it
stopped. ``--list`` says what the parts are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpu_throughput
import gpu_weights
from gpu_pairs import PAIRS
from parts import Part, main
from results import Results


def _prepared(measure: Callable[..., None], *arguments: Any) -> Callable[[Results, bool], None]:
    """What a part does, in the environment of all engines."""

    def run(results: Results, toy: bool) -> None:
        chosen = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        if toy:
            chosen["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        for name, value in chosen.items():
            os.environ.setdefault(name, value)
        measure(*arguments, results, toy)

    return run


def _parts() -> list[Part]:
    parts = []
    for name, pair in PAIRS.items():
        measure = _prepared(gpu_throughput.measure, pair)
        table: Any = partial(gpu_throughput.table, pair)
        parts.append(Part(name, f"{pair.title}: throughput and memory", measure, table))
    for name in ("1.7b", "4b"):
        pair, table = PAIRS[name], partial(gpu_weights.table, PAIRS[name])
        measure = _prepared(gpu_weights.measure, pair)
        parts.append(
            Part(f"weights-{name}", f"{pair.title}: weight syncs and sleep", measure, table)
        )
    return parts


PARTS = _parts()

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve(), str(__doc__).splitlines()[0], PARTS))
