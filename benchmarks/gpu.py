"""What tandem costs on a GPU: ``make bench-gpu``, or ``python benchmarks/gpu.py --part 1.7b``.

Throughput of the senior alone, in lockstep and speculative at batch 1, 16, 64 and 256, memory,
weight syncs and sleep, with random models at the widths of Qwen3 made on the spot.
Each part is ended within four minutes and can be run alone; started again, it goes on where it
stopped. ``--list`` says what the parts are.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gpu_throughput
import gpu_weights
from gpu_pairs import PAIRS
from parts import Part, main
from results import Results

__all__ = ["PARTS"]


def _throughput(name: str, drafts: tuple[int, ...], results: Results, toy: bool) -> None:
    _prepare(toy)
    gpu_throughput.measure(PAIRS[name], drafts, results, toy)


def _weights(name: str, results: Results, toy: bool) -> None:
    _prepare(toy)
    gpu_weights.measure(PAIRS[name], results, toy)


def _prepare(toy: bool) -> None:
    """The environment of all engines."""
    chosen = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    if toy:
        chosen["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    for name, value in chosen.items():
        os.environ.setdefault(name, value)


def _parts() -> list[Part]:
    parts = []
    for name, pair in PAIRS.items():
        table: Any = partial(gpu_throughput.table, pair)
        purpose = f"throughput and memory, {pair.title}: alone, in lockstep, with "
        for suffix, drafts in (("", (4,)), ("-drafts", (2, 8))):
            if suffix:
                purpose = f"throughput of {pair.title} with "
            said = purpose + " and ".join(map(str, drafts)) + " drafts"
            measure = partial(_throughput, name, drafts)
            parts.append(Part(name + suffix, said, measure, table))
    for name in ("1.7b", "4b"):
        whole: Any = partial(gpu_weights.table, PAIRS[name])
        purpose = f"weight syncs and sleep, {PAIRS[name].title}"
        parts.append(Part(f"weights-{name}", purpose, partial(_weights, name), whole))
    return parts


PARTS = _parts()

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve(), str(__doc__).splitlines()[0], PARTS))
