"""How engine arguments become a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.wire import COMPOSITE, PREFIX, SPECULATIVE_PREFIX, asks_for_tandem
from tandem_plugin.patching.wrapping import wrap_once


def wrap_engine_config() -> None:
    """Route engine arguments with tandem through :mod:`~tandem_plugin.engine.configure`.

    Touches: ``EngineArgs.create_engine_config``. Versions: 0.27 to 0.32. Why: every way into vLLM
    (Python, ``vllm serve``, verl, OpenRLHF) calls it, before the model configuration is created.
    Goes when: vLLM offers a hook that amends engine arguments.
    """
    from vllm.engine.arg_utils import EngineArgs

    def wrapper(create: Callable[..., Any], args: Any, *rest: Any, **options: Any) -> Any:
        if not asks_for_tandem(args.additional_config):
            return create(args, *rest, **options)
        from tandem_plugin.engine.configure import create_tandem_config

        return create_tandem_config(create, args, *rest, **options)

    wrap_once(EngineArgs, "create_engine_config", wrapper)


def register_architectures() -> None:
    """Register tandem architectures, by string, for every architecture that vLLM knows.

    One for each mode of the engine.

    Touches: ``ModelRegistry.register_model`` (public) and ``MODELS_CONFIG_MAP``, vLLM's table of
    per-architecture settings, mirrored so that a senior keeps its own. Versions: 0.27 to 0.32. Why:
    worker processes look the architecture up by name and cannot know which one is needed. Goes
    when: vLLM lets a plugin name the model class of one engine (``model_class_overrides`` reaches
    the oldest supported version).
    """
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    for architecture in list(ModelRegistry.models):
        tandem = PREFIX + architecture
        if architecture.startswith(PREFIX) or tandem in ModelRegistry.models:
            continue
        speculative = SPECULATIVE_PREFIX + architecture
        ModelRegistry.register_model(tandem, f"{COMPOSITE}:{tandem}")
        ModelRegistry.register_model(speculative, f"{COMPOSITE}:{speculative}")
        if architecture in MODELS_CONFIG_MAP:
            MODELS_CONFIG_MAP[tandem] = MODELS_CONFIG_MAP[architecture]
            MODELS_CONFIG_MAP[speculative] = MODELS_CONFIG_MAP[architecture]
