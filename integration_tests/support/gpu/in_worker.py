"""Functions that run inside the worker of an engine on a GPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

_replays: Counter[str] = Counter()


def count_replays(worker: Any) -> None:
    """Count the CUDA graphs that are replayed from now on."""
    graph = torch.cuda.CUDAGraph
    original = graph.replay

    def replay(self: Any) -> None:
        _replays["all"] += 1
        original(self)

    graph.replay = replay  # type: ignore[method-assign]


def replays(worker: Any) -> int:
    """How many were replayed since then."""
    return _replays["all"]


def graph_mode(worker: Any) -> str:
    """The kinds of CUDA graphs that the engine really uses, whatever was asked for."""
    mode = worker.vllm_config.compilation_config.cudagraph_mode
    return "NONE" if mode is None else str(mode.name)


def free_gib(worker: Any) -> float:
    """Free memory of the device, in GiB."""
    return float(torch.cuda.mem_get_info()[0] / 2**30)


def junior_digest(worker: Any) -> str:
    """A hash of the junior's parameters, wherever the mode holds it."""
    from support.worker import digest

    model = worker.model_runner.model
    holder = model if hasattr(model, "junior") else worker.model_runner.get_draft_model()
    return digest(holder.junior.named_parameters())
