"""What an engine's own process does with weights: tells their memory, syncs them, sleeps, wakes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def memory(llm: Any) -> dict[str, int]:
    """KV blocks, their size in tokens, and bytes of weights, of the process and of a GPU."""
    cache = llm.llm_engine.vllm_config.cache_config
    (found,) = llm.collective_rpc(_weights)
    status = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
    return {
        "blocks": cache.num_gpu_blocks,
        "block_size": cache.block_size,
        "resident_bytes": resident,
        **found,
        **_device_memory(),
    }


def _weights(worker: Any) -> dict[str, int]:
    """Bytes of the senior's parameters, and of those that the junior has besides.

    Wherever the mode holds the junior.
    """

    def sizes(part: Any) -> dict[int, int]:
        return {p.data_ptr(): p.numel() * p.element_size() for p in part.parameters()}

    runner = worker.model_runner
    model = runner.get_model()
    holder = model
    if not hasattr(model, "junior") and hasattr(runner, "get_draft_model"):
        holder = runner.get_draft_model()
    junior = getattr(holder, "junior", None)
    of_senior = sizes(model)
    both = of_senior if junior is None else of_senior | sizes(junior)
    senior_bytes = sum(of_senior.values())
    return {"senior_bytes": senior_bytes, "junior_bytes": sum(both.values()) - senior_bytes}


def _device_memory() -> dict[str, int]:
    """What is taken of a GPU, all processes together, and the most that torch reserved."""
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    return {
        "device_bytes": total - free,
        "device_total_bytes": total,
        "most_reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def sync(llm: Any, checkpoint: str, rounds: int) -> list[float]:
    """Seconds of a weight sync each: plain names and tensors on the device, one bucket."""
    times: list[list[float]] = llm.collective_rpc(_load_again, args=(checkpoint, rounds))
    llm.reset_prefix_cache()
    return times[0]


def _load_again(worker: Any, checkpoint: str, rounds: int) -> list[float]:
    from safetensors.torch import load_file

    weights: dict[str, Any] = {}
    for file in sorted(Path(checkpoint).glob("*.safetensors")):
        weights |= load_file(file, device=str(worker.device))
    model, times = worker.model_runner.get_model(), []
    for _ in range(rounds):
        start = _settled()
        model.load_weights(list(weights.items()))
        times.append(_settled() - start)
    return times


def sleep(llm: Any, level: int, checkpoint: str) -> dict[str, float]:
    """Seconds to sleep, to wake weights and cache, and GiB of the device given back.

    At level 2 the senior is synced between the two, which is not counted here.
    """
    import torch

    free, start = torch.cuda.mem_get_info()[0], _settled()
    llm.sleep(level=level)
    asleep = _settled()
    given = (torch.cuda.mem_get_info()[0] - free) / 2**30
    begin = _settled()
    llm.wake_up(["weights"])
    woken = _settled()
    if level == 2:
        sync(llm, checkpoint, 1)
    again = _settled()
    llm.wake_up(["kv_cache"])
    return {
        "sleep": asleep - start,
        "wake": woken - begin + _settled() - again,
        "gib_given_back": given,
    }


def _settled() -> float:
    """The time once the device has done what it was asked for."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
