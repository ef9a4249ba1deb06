"""The engine that fills a file of rollouts, in the process that writes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tandem_plugin.errors import EngineError, TandemError

__all__ = ["deciding", "start_engine"]

_NEUTRAL = {
    "disable_log_stats",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_num_batched_tokens",
    "max_num_seqs",
    "tensor_parallel_size",
}
"""Engine arguments that say how to compute, and not what: a resumed run may change them."""


def deciding(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's arguments that decide the responses."""
    return {k: v for k, v in arguments.items() if k not in _NEUTRAL}


def start_engine(model: str, arguments: Mapping[str, Any], tandem: Mapping[str, Any] | None) -> Any:
    """vLLM's own ``LLM``, or a :class:`TandemLLM` where ``tandem`` settings are given.

    Raises :class:`EngineError` when vLLM is missing or does not start.
    """
    # The engine runs in this process: vLLM's own engine process would outlive a killed command, and
    # keep its memory, so that the command could not go on.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    # stdout is for the result: vLLM logs to stderr, and only what is wrong.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    together = {} if tandem is None else {"tandem": dict(tandem)}
    try:
        engine = _tandem_llm() if together else _llm()
    except ImportError as error:
        raise EngineError(
            f'vLLM cannot be imported: {error}. Install it, for example with "pip install '
            "'tandem-plugin[vllm]'\"."
        ) from error
    try:
        return engine(model, **together, **arguments)
    except TandemError:
        raise
    except Exception as error:
        raise EngineError(f"The engine did not start: {type(error).__name__}: {error}") from error


def _llm() -> Any:
    from vllm import LLM

    return LLM


def _tandem_llm() -> Any:
    from tandem_plugin.engine.llm import TandemLLM

    return TandemLLM
