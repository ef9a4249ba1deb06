"""One folder per model runner of vLLM: how a step's authors reach the composite model there.

V2 (the default on GPUs) finds its binding through the composite model's ``get_model_state_cls``
(:mod:`~tandem_plugin.engine.runners.v2`); V1 through a logits processor
(:mod:`~tandem_plugin.engine.runners.v1`), which is added only if V1 was chosen: otherwise its
presence would make vLLM choose V1.
"""

from __future__ import annotations

from typing import Any

from tandem_plugin.engine.wire import AUTHORS_PROCESSOR, PREFIX
from tandem_plugin.errors import EngineError

__all__ = ["bind_runner", "check_engine", "default_runner", "is_on_cpu"]


def bind_runner(vllm_config: Any, asked_for_async: bool | None) -> None:
    """Add the chosen runner's binding to a finished configuration.

    asked_for_async: the engine argument for asynchronous scheduling. Raises :class:`EngineError` if
    it is set on V1, where the last token arrives only after the logits are computed, too late to
    know the author.
    """
    if _is_v2(vllm_config):
        return
    if asked_for_async:
        raise EngineError("async-scheduling-unsupported")
    vllm_config.scheduler_config.async_scheduling = False
    processors = list(vllm_config.model_config.logits_processors or [])
    if AUTHORS_PROCESSOR not in processors:
        vllm_config.model_config.logits_processors = [*processors, AUTHORS_PROCESSOR]


def _is_v2(vllm_config: Any) -> bool:
    return bool(getattr(vllm_config, "use_v2_model_runner", False))


def default_runner() -> tuple[str, str]:
    """The type of the device that vLLM finds, and the model runner that it chooses by itself.

    Both empty without a device.
    """
    from vllm.config import VllmConfig
    from vllm.platforms import current_platform

    device = str(getattr(current_platform, "device_type", "") or "")
    return (device, "V2" if _is_v2(VllmConfig()) else "V1") if device else ("", "")


def is_on_cpu() -> bool:
    """Whether this vLLM is its CPU build."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def check_engine(vllm_config: Any) -> None:
    """Raise :class:`EngineError` unless this engine's configuration is a tandem engine's.

    vllm_config: the ``VllmConfig`` of a running engine.
    """
    architecture = next(iter(vllm_config.model_config.architectures), "")
    if architecture.startswith(PREFIX):
        processors = vllm_config.model_config.logits_processors or []
        if _is_v2(vllm_config) or AUTHORS_PROCESSOR in processors:
            return
    raise EngineError("engine-not-in-tandem", architecture=architecture)
