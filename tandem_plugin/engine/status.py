"""Whether an engine runs in tandem, for adapters that must not train on anything else."""

from __future__ import annotations

from typing import Any

from tandem_plugin.engine.runners import is_bound
from tandem_plugin.engine.wire_names import PREFIX
from tandem_plugin.errors import EngineError

__all__ = ["check_engine"]


def check_engine(vllm_config: Any) -> None:
    """Raise :class:`EngineError` unless this engine's configuration is a tandem engine's.

    vllm_config: the ``VllmConfig`` of a running engine.
    """
    architecture = next(iter(vllm_config.model_config.architectures), "")
    if architecture.startswith(PREFIX) and is_bound(vllm_config):
        return
    raise EngineError("TP363", architecture=architecture)
