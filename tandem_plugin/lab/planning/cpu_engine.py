"""How much memory an engine on a CPU takes, where nobody said how much.

vLLM would take 0.92 of the machine's, and stop where other programs hold more than the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.errors import ConfigError, EngineError
from tandem_plugin.lab.planning.checkpoint import PlannedModel, read_checkpoint
from tandem_plugin.lab.planning.devices import host_memory
from tandem_plugin.lab.planning.geometry import KvCache

__all__ = ["cpu_arguments"]

_GIB = 2**30
_BLOCK = 128
"""Tokens of a block in vLLM's CPU build."""
_COPIES = 2
"""That build computes with packed copies of weights, and a tandem engine keeps both."""
_PROCESS = 2 * _GIB
"""For Python, PyTorch, compiled code and activations."""
_SHARE = 0.7
"""Of what is left, for the KV cache: other programs go on."""
_REQUESTS, _PROMPT = 256, 1024
"""vLLM's ``max_num_seqs`` on a CPU, and a prompt's usual length, for as much as is of any use."""
_UNPLANNED = 4 * _GIB
"""The most for models whose sizes are not known before they are loaded."""


def cpu_arguments(
    models: Sequence[str], arguments: Mapping[str, Any], tokens: int
) -> tuple[dict[str, int], str]:
    """Engine arguments that fit what is free now, and a sentence that says what was chosen.

    Both are empty where the user chose: by ``kv_cache_memory_bytes``, ``gpu_memory_utilization``
    or ``VLLM_CPU_KVCACHE_SPACE``. models: the senior, and the junior where there is one. tokens:
    the longest response. Raises :class:`EngineError` where not even one response fits.
    """
    chosen = ("kv_cache_memory_bytes", "gpu_memory_utilization")
    found = host_memory()
    if any(name in arguments for name in chosen) or os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
        return {}, ""
    if found is None:
        return {}, ""
    _, available = found
    try:
        checkpoints = [read_checkpoint(model) for model in models]
    except ConfigError:  # vLLM may know it all the same
        memory = min(_UNPLANNED, int(_SHARE * max(0, available - _PROCESS) / 2))
        return {"kv_cache_memory_bytes": memory}, _sentence(memory, available, None)
    return _planned(checkpoints, arguments, tokens, available)


def _planned(
    checkpoints: Sequence[PlannedModel], arguments: Mapping[str, Any], tokens: int, available: int
) -> tuple[dict[str, int], str]:
    width = 4 if str(arguments.get("dtype")) in ("float32", "float") else 2
    block = int(arguments.get("block_size") or _BLOCK)
    cache = KvCache.of([one.geometry for one in checkpoints], width, 1, block)
    weights = _COPIES * sum(one.weights(width) for one in checkpoints)
    room = int(_SHARE * (available - weights - _PROCESS))
    longest = min(one.geometry.longest for one in checkpoints)
    given = arguments.get("max_model_len")
    wanted = int(given) if isinstance(given, int) and given > 0 else longest
    least = min(wanted, tokens + 1)
    if cache.longest(cache.blocks(room), 1) < least:
        raise EngineError(
            "TP936",
            available=available / _GIB,
            weights=weights / _GIB,
            process=_PROCESS / _GIB,
            tokens=tokens,
        )
    requests = int(arguments.get("max_num_seqs") or _REQUESTS)
    # Whole requests, one block that vLLM keeps, and never less than one of the longest.
    each = -(-min(wanted, tokens + _PROMPT) // block)
    useful = max(requests * each, -(-wanted // block)) + 1
    memory = min(room, useful * cache.bytes_per_block)
    fits = cache.longest(cache.blocks(memory), 1)
    chosen = {"kv_cache_memory_bytes": memory}
    if fits < wanted:
        if given is not None:
            raise EngineError(
                "TP937", given=given, available=available / _GIB, memory=memory / _GIB, fits=fits
            )
        chosen["max_model_len"] = fits
    return chosen, _sentence(memory, available, chosen.get("max_model_len"))


def _sentence(memory: int, available: int, longest: int | None) -> str:
    reads = "" if longest is None else f" and reads up to {longest:,} tokens"
    return (
        f"On this CPU the engine takes {memory / _GIB:.1f} GiB for its KV cache{reads}: "
        f"{available / _GIB:.1f} GiB are free. --engine kv_cache_memory_bytes=BYTES and --engine "
        "max_model_len=TOKENS choose otherwise."
    )
