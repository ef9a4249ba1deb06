"""The architectures that vLLM knows."""

from __future__ import annotations

from tandem_plugin.engine.names import COMPOSITE, PREFIX, SPECULATIVE_PREFIX

__all__ = ["register_architectures"]


def register_architectures() -> None:
    """Register tandem architectures, by string, for every architecture that vLLM knows.

    One for each mode of the engine.

    Touches: ``ModelRegistry.register_model`` (public) and ``MODELS_CONFIG_MAP``, vLLM's table of
    per-architecture settings, mirrored so that a senior keeps its own. Versions: 0.27 to 0.32.
    Why: worker processes look the architecture up by name and do not know which one will come.
    Goes when: vLLM lets a plugin name the model class of one engine (``model_class_overrides``
    reaches the oldest supported version).
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
