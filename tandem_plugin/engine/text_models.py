"""Unified checkpoints (:mod:`tandem_plugin.files.unified`) without their vision part."""

from __future__ import annotations

from typing import Any

from tandem_plugin.engine.wire import without_prefix
from tandem_plugin.files.unified import TEXT_CLASSES, text_weight
from tandem_plugin.patching.wrapping import wrap_once

_OF_BOTH = ("architectures", "tie_word_embeddings", "quantization_config", "head_dtype")
"""What a unified checkpoint's config has about its text model outside its text config."""


def keep_text_config(model: Any) -> Any:
    """A model's configuration, reduced to the text model's if it is a unified checkpoint's.

    Text has the same position in all sections of M-RoPE, which is plain RoPE then.
    """
    unified, text = model.hf_config, model.hf_text_config
    if text is not unified and without_prefix(model.architecture) in TEXT_CLASSES.values():
        text.update({name: getattr(unified, name) for name in _OF_BOTH if hasattr(unified, name)})
        for name in ("mrope_section", "mrope_interleaved"):
            (text.rope_parameters or {}).pop(name, None)
        model.hf_config = text
    return model


def read_text_weights(architecture: str) -> None:
    """Let a text model's class read the weights of a unified checkpoint, in syncs as well.

    Touches: ``load_weights`` of such a class, and of no other. Versions: 0.24 to 0.33. Why: it
    knows neither their names nor vision weights. Goes when: vLLM's classes do.
    """
    if architecture in TEXT_CLASSES.values():
        from vllm import ModelRegistry

        def load(load: Any, model: Any, weights: Any, *arguments: Any, **options: Any) -> Any:
            renamed = ((text_weight(name), weight) for name, weight in weights)
            return load(model, (weight for weight in renamed if weight[0]), *arguments, **options)

        wrap_once(ModelRegistry.models[architecture].load_model_cls(), "load_weights", load)
