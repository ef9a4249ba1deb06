"""The device of tests: a GPU where PyTorch finds one, and otherwise a CPU.

Tests with the marker ``gpu`` state the memory that they need, and are skipped with the reason where
it is missing. Engines share one device: each takes a small share of its memory. Imported where
there is no pytest as well.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch

SHARE = float(os.environ.get("TANDEM_TEST_GPU_SHARE", "0.05"))
"""The share of a GPU's memory that each engine may take."""

CAPTURE_SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64]

KV_CACHE_BYTES = 2**28
"""Given, so that vLLM does not infer it from free memory, which other engines change meanwhile."""


@cache
def is_gpu() -> bool:
    """Whether this machine has a GPU."""
    return torch.cuda.is_available()


def on_gpu(*kind: str, gib: float = 4, marks: Any = ()) -> Any:
    """A test's parameter for a GPU. kind: the parameter's value. gib: the memory that it needs."""
    import pytest

    return pytest.param(kind, id="-".join(["gpu", *kind]), marks=[pytest.mark.gpu(gib=gib), *marks])


def missing(gib: float, devices: int = 1) -> str | None:
    """Why a test cannot run here that needs so much free memory on so many GPUs."""
    if not is_gpu():
        return "no CUDA device"
    if torch.cuda.device_count() < devices:
        return f"needs {devices} CUDA devices, has {torch.cuda.device_count()}"
    free = torch.cuda.mem_get_info()[0] / 2**30
    return f"needs {gib:g} GiB of GPU memory, {free:.1f} are free" if free < gib else None


def engine_arguments() -> dict[str, Any]:
    """What every engine of a test gets on this device."""
    if not is_gpu():
        return {"gpu_memory_utilization": 0.1}
    return {"gpu_memory_utilization": SHARE, "kv_cache_memory_bytes": KV_CACHE_BYTES}


def graph_arguments(kinds: str) -> dict[str, Any]:
    """A GPU's compiler and CUDA graphs of these kinds, or none of both for "eager"."""
    if kinds == "eager":
        return {"enforce_eager": True}
    compilation = {"cudagraph_mode": kinds, "cudagraph_capture_sizes": CAPTURE_SIZES}
    return {"enforce_eager": False, "compilation_config": compilation}
