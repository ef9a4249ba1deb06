"""Unified checkpoints, which also see images: vLLM's class of their text model, and its config.

The vision part is neither built nor loaded. Importing this module imports neither torch nor vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_CLASSES = {
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
}
"""The class of the text model, by the architecture of a unified checkpoint."""

VISION_PREFIXES = ("model.visual.", "visual.")
"""Names of the weights of these checkpoints that a text model has no place for."""


def text_architecture(architecture: str) -> str:
    """The class of a unified checkpoint's text model; any other architecture as it is."""
    return TEXT_CLASSES.get(architecture, architecture)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a ``config.json`` that describes the text model."""
    unified = TEXT_CLASSES.keys() & (config.get("architectures") or ())
    nested = config.get("text_config")
    return nested if unified and isinstance(nested, Mapping) else config


def drop_vision_weights(architecture: str) -> None:
    """Let the class of a unified checkpoint's text model skip vision weights, in syncs as well.

    Touches: ``hf_to_vllm_mapper`` of such a class, and of no other. Versions: 0.29 to 0.33. Why: it
    renames ``model.language_model.``, but fails on ``model.visual.``. Goes when: it skips them.
    """
    if architecture in TEXT_CLASSES.values():
        from vllm import ModelRegistry
        from vllm.model_executor.models.utils import WeightsMapper

        kind = ModelRegistry.models[architecture].load_model_cls()
        kind.hf_to_vllm_mapper |= WeightsMapper(orig_to_new_prefix=dict.fromkeys(VISION_PREFIXES))
