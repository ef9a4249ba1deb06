"""The resources of this machine, and the default memory of an engine on a CPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.lab.planning.checkpoint import KvCache, PlannedModel, read_checkpoint

__all__ = ["Card", "cpu_arguments", "graphics_cards", "host_memory"]

MIB = 2**20
_QUERY = "name,memory.total,memory.free,driver_version"
_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Card:
    """One NVIDIA GPU, as its driver's ``nvidia-smi`` shows it."""

    name: str
    total: int
    free: int
    """Bytes."""
    driver: str


def graphics_cards() -> tuple[Card, ...]:
    """The NVIDIA GPUs of this machine; none if there is no driver or it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [[part.strip() for part in line.split(",")] for line in found.splitlines()]
    return tuple(
        Card(name, int(total) * MIB, int(free) * MIB, driver)
        for name, total, free, driver in (row for row in rows if len(row) == 4)
        if total.isdigit() and free.isdigit()
    )


def host_memory() -> tuple[int, int] | None:
    """Bytes of this machine's memory, total and available; None if Linux does not report it.

    In a container with a lower limit, the container's.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        total, available = sizes["MemTotal"], sizes["MemAvailable"]
    except (OSError, ValueError, LookupError):
        return None
    limit, used = _control_group()
    if limit is not None and limit < total:
        return limit, max(0, min(available, limit - used))
    return total, available


def _control_group() -> tuple[int | None, int]:
    """The limit of this control group's memory, and how much of it is used."""
    folder = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return int((folder / limit).read_text()), int((folder / used).read_text())
        except (OSError, ValueError):  # "max": there is no limit
            continue
    return None, 0


_GIB = 2**30
_BLOCK = 128
"""Tokens of a block in vLLM's CPU build."""
_COPIES = 2
"""That build computes with packed copies of weights, and a tandem engine keeps both."""
_PROCESS = 2 * _GIB
"""For Python, PyTorch, compiled code and activations."""
_SHARE = 0.7
"""Share of the rest for the KV cache: other programs need memory too."""
_REQUESTS, _PROMPT = 256, 1024
"""vLLM's ``max_num_seqs`` on a CPU, and a typical prompt length, for the largest useful cache."""
_UNPLANNED = 4 * _GIB
"""The most for models whose sizes are not known before they are loaded."""


def cpu_arguments(
    models: Sequence[str], arguments: Mapping[str, Any], tokens: int
) -> tuple[dict[str, int], str]:
    """Engine arguments that fit the free memory, and a sentence that states the choice.

    Both are empty if the user chose through ``kv_cache_memory_bytes``, ``gpu_memory_utilization``
    or ``VLLM_CPU_KVCACHE_SPACE``. models: the senior, and the junior if there is one. tokens: the
    longest response. Raises :class:`EngineError` if not even one response fits.
    """
    own = {"kv_cache_memory_bytes", "gpu_memory_utilization"} & arguments.keys()
    found = host_memory()
    if own or os.environ.get("VLLM_CPU_KVCACHE_SPACE") or found is None:
        return {}, ""
    _, available = found
    try:
        checkpoints = [read_checkpoint(model) for model in models]
    except ConfigError:  # vLLM may still support it
        memory = min(_UNPLANNED, int(_SHARE * max(0, available - _PROCESS) / 2))
        chosen = {"kv_cache_memory_bytes": memory}
    else:
        chosen = _planned(checkpoints, arguments, tokens, available)
    return chosen, _sentence(chosen, available)


def _planned(
    checkpoints: Sequence[PlannedModel], arguments: Mapping[str, Any], tokens: int, available: int
) -> dict[str, int]:
    width = 4 if str(arguments.get("dtype")) in ("float32", "float") else 2
    block = int(arguments.get("block_size") or _BLOCK)
    cache = KvCache.of(checkpoints, width, 1, block)
    weights = _COPIES * sum(one.weights(width) for one in checkpoints)
    room = int(_SHARE * (available - weights - _PROCESS))
    longest = min(one.longest for one in checkpoints)
    given = arguments.get("max_model_len")
    target = int(given) if isinstance(given, int) and given > 0 else longest
    if cache.longest(room) < min(target, tokens + 1):
        raise EngineError(
            "TP936",
            available=available / _GIB,
            weights=weights / _GIB,
            process=_PROCESS / _GIB,
            tokens=tokens,
        )
    requests = int(arguments.get("max_num_seqs") or _REQUESTS)
    # Whole requests, plus vLLM's reserved block; at least one request of the maximum length.
    each = -(-min(target, tokens + _PROMPT) // block)
    useful = max(requests * each, -(-target // block)) + 1
    memory = min(room, useful * cache.bytes_per_block)
    chosen = {"kv_cache_memory_bytes": memory}
    if cache.longest(memory) < target and given is None:
        chosen["max_model_len"] = cache.longest(memory)
    return chosen


def _sentence(chosen: Mapping[str, int], available: int) -> str:
    longest = chosen.get("max_model_len")
    reads = "" if longest is None else f" and reads up to {longest:,} tokens"
    return (
        f"On this CPU the engine uses {chosen['kv_cache_memory_bytes'] / _GIB:.1f} GiB for its KV "
        f"cache{reads}: {available / _GIB:.1f} GiB are free. Override this with --engine "
        "kv_cache_memory_bytes=BYTES and --engine max_model_len=TOKENS."
    )
