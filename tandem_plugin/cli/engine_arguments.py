"""``--engine NAME=VALUE``: arguments of vLLM's engine, as commands take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tandem_plugin.cli.assignments import assignments
from tandem_plugin.errors import ConfigError

__all__ = ["deciding", "engine_arguments"]

_REFUSED = ("model", "additional_config", "tandem")
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


def engine_arguments(given: Sequence[str]) -> dict[str, Any]:
    """The engine's arguments by name; raises :class:`ConfigError` for what others say."""
    arguments = {k.replace("-", "_"): v for k, v in assignments("--engine", given).items()}
    for name in _REFUSED:
        if name in arguments:
            raise ConfigError(
                f"--engine {name}=... is not for the engine's arguments: --senior, --junior, "
                "--schedule and --set say it."
            )
    return arguments


def deciding(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that decide the responses."""
    return {k: v for k, v in arguments.items() if k not in _NEUTRAL}
