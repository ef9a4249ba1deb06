"""Seniors, and juniors, that keep recurrent states in addition to the paged KV cache of attention.

The state of a layer (Mamba, gated delta net, short convolution) takes one page of the pool that
also holds keys and values. vLLM asks the class of the engine's model how large states are, and how
to copy one for prefix caching. A tandem class answers for both models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from tandem_plugin.engine.junior import junior_config


def members(senior_class: type[nn.Module]) -> dict[str, Any]:
    """Attributes of the tandem class of a hybrid senior, by name; none for any other senior."""
    if not getattr(senior_class, "is_hybrid", False):
        return {}
    return {
        "get_mamba_specs_from_config": classmethod(_state_specs),
        "get_mamba_state_copy_funcs": _state_copies,
    }


def _state_specs(cls: Any, vllm_config: Any) -> list[Any]:
    """The states of both models: a page holds the largest of them.

    Source: ``Platform._align_hybrid_block_size`` of vLLM 0.29 to 0.33, once both models are built.
    """
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.models import ModelRegistry

    specs = _specs_of(cls._senior, vllm_config)
    config = junior_config(vllm_config)
    junior = config.model_config
    if junior.is_hybrid:
        kind, _ = ModelRegistry.resolve_model_cls(junior.architecture, model_config=junior)
        with set_current_vllm_config(config):
            specs += _specs_of(kind, config)
    return specs


def _specs_of(kind: Any, vllm_config: Any) -> list[Any]:
    from vllm.v1.kv_cache_interface import MambaSpec

    if hasattr(kind, "get_mamba_specs_from_config"):
        return [*kind.get_mamba_specs_from_config(vllm_config)]
    shapes = kind.get_mamba_state_shape_from_config(vllm_config)
    dtypes = kind.get_mamba_state_dtype_from_config(vllm_config)
    return [MambaSpec(shapes=shapes, dtypes=dtypes, block_size=-1)]


def _state_copies(self: Any, mamba_types: set[Any]) -> Mapping[Any, Any]:
    """How to copy the states of both models, by the kind of layer.

    Source: both model runners of vLLM 0.29 to 0.33, in cache mode "align".
    """
    copies: dict[Any, Any] = {}
    models = [(self, self._senior)]
    if junior := getattr(self, "junior", None):  # that of a speculative engine has no states
        models.append((junior, type(junior)))
    for model, kind in models:
        if types := mamba_types & state_kinds(model):
            copies |= kind.get_mamba_state_copy_funcs(types)
    return copies


def state_kinds(model: nn.Module) -> set[Any]:
    """vLLM's kinds of the layers with recurrent states in a model; empty if it has none."""
    from vllm.model_executor.layers.mamba.abstract import MambaBase

    return {part.mamba_type for part in model.modules() if isinstance(part, MambaBase)}
