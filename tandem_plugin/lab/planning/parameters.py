"""How many parameters a model has, from its configuration alone, for the usual families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tandem_plugin.lab.planning.geometry import Geometry

__all__ = ["count_parameters", "layer_parameters", "root_parameters"]

_BIASED = ("llama", "mistral", "qwen3", "qwen3_moe")
"""Families in which ``attention_bias`` gives all four projections a bias."""
_NORMED = ("qwen3", "qwen3_moe")
"""Families that normalise each head's query and key."""
_DENSE = ("llama", "mistral", "qwen2", "qwen3", "phi3")
_MIXTURES = {"qwen3_moe": "num_experts", "mixtral": "num_local_experts"}
"""Mixtures of experts, and what their configurations call the number of experts."""


def count_parameters(config: Mapping[str, Any], geometry: Geometry) -> int | None:
    """The exact number of a family's parameters; None for families that are not known here."""
    kind = geometry.model_type
    if kind not in _DENSE and kind not in _MIXTURES:
        return None
    sparse = _sparse_layers(config, geometry)
    attention = geometry.layers * (_attention(config, geometry) + 2 * geometry.hidden)
    dense = (geometry.layers - sparse) * _mlp(config, geometry)
    mixtures = sparse * _experts(config, geometry) if sparse else 0
    return root_parameters(geometry) + attention + dense + mixtures


def root_parameters(geometry: Geometry) -> int:
    """Those outside the layers: embedding, output layer, last norm."""
    tables = 1 if geometry.tied else 2
    return tables * geometry.vocabulary * geometry.hidden + geometry.hidden


def layer_parameters(parameters: int, geometry: Geometry) -> int:
    """Those of one layer, in the mean."""
    return max(0, parameters - root_parameters(geometry)) // geometry.layers


def _attention(config: Mapping[str, Any], geometry: Geometry) -> int:
    queries = geometry.heads * geometry.head_size
    keys = geometry.kv_heads * geometry.head_size
    weights = 2 * geometry.hidden * (queries + keys)
    kind, bias = geometry.model_type, 0
    if kind == "qwen2":
        bias = queries + 2 * keys
    elif kind in _BIASED and config.get("attention_bias"):
        bias = queries + 2 * keys + geometry.hidden
    norms = 2 * geometry.head_size if kind in _NORMED else 0
    return weights + bias + norms


def _mlp(config: Mapping[str, Any], geometry: Geometry) -> int:
    width = int(config["intermediate_size"])
    bias = 2 * width + geometry.hidden if config.get("mlp_bias") else 0
    return 3 * geometry.hidden * width + bias


def _experts(config: Mapping[str, Any], geometry: Geometry) -> int:
    number = int(config[_MIXTURES[geometry.model_type]])
    width = int(config.get("moe_intermediate_size") or config["intermediate_size"])
    return number * (3 * geometry.hidden * width + geometry.hidden)


def _sparse_layers(config: Mapping[str, Any], geometry: Geometry) -> int:
    """How many layers are mixtures."""
    if geometry.model_type not in _MIXTURES:
        return 0
    step = int(config.get("decoder_sparse_step") or 1)
    dense = config.get("mlp_only_layers") or []
    return sum((i + 1) % step == 0 and i not in dense for i in range(geometry.layers))
