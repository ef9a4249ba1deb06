"""Unified checkpoints, which also see images: what in them is of their text model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_CLASSES = {
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
}
"""vLLM's class of the text model, by the architecture of a unified checkpoint."""

VISION_PREFIXES = tuple(
    prefix + part
    for part in ("visual.", "vision_tower.", "multi_modal_projector.")
    for prefix in ("model.", "")
)
"""Names of the weights of these checkpoints that a text model has no place for."""

_TEXT_PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
"""Names of the weights of their text models, as trainers or older checkpoints have them."""


def text_architecture(architecture: str) -> str:
    """The class of a unified checkpoint's text model; any other architecture as it is."""
    return TEXT_CLASSES.get(architecture, architecture)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a ``config.json`` that describes the text model."""
    unified = TEXT_CLASSES.keys() & (config.get("architectures") or ())
    nested = config.get("text_config")
    return nested if unified and isinstance(nested, Mapping) else config


def text_weight(name: str) -> str | None:
    """A weight's name in the text model; None for a weight of the vision part."""
    if name.startswith(VISION_PREFIXES):
        return None
    for old, new in _TEXT_PREFIXES.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
