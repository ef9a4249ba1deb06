"""What a checkpoint's ``config.json`` says: sizes, parameters, and KV cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem_plugin.errors import ConfigError

__all__ = ["Geometry", "KvCache", "count_parameters"]

_LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
"""Families whose keys and values vLLM keeps as one latent vector (MLA)."""

_BIASED = ("llama", "mistral", "qwen3", "qwen3_moe")
"""Families in which ``attention_bias`` gives all four projections a bias."""
_NORMED = ("qwen3", "qwen3_moe")
"""Families that normalise each head's query and key."""
_DENSE = ("llama", "mistral", "qwen2", "qwen3", "phi3")
_MIXTURES = {"qwen3_moe": "num_experts", "mixtral": "num_local_experts"}
"""Mixtures of experts, and what their configurations call the number of experts."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a decoder-only model, in the words of Hugging Face's configurations."""

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    longest: int
    """The most tokens of prompt and response that the model reads."""
    latent: int | None
    """The length of the vector that is kept of a token in place of keys and values (MLA)."""
    windowed: int
    """How many layers attend to a window only, while others attend to everything."""
    tied: bool
    """Whether the output layer is the embedding."""

    @classmethod
    def of(cls, config: Mapping[str, Any], name: str) -> Geometry:
        """Read a configuration.

        name: the checkpoint's, for errors. Raises :class:`ConfigError` for one that says too
        little, or belongs to a model that tandem does not take.
        """
        kind = str(config.get("model_type", ""))
        types = config.get("layer_types") or []
        if "text_config" in config or "vision_config" in config:
            raise ConfigError("TP938", name=name, kind=kind)
        if others := {*types} - {"full_attention", "sliding_attention"}:
            raise ConfigError("TP939", name=name, kind=kind, layers=sorted(others))

        def number(key: str, default: int | None = None) -> int:
            value = config.get(key)
            value = default if value is None else value
            if type(value) is not int or value < 1:
                raise ConfigError(
                    "TP940", name=name, kind=kind or "no model_type", key=key, value=value
                )
            return int(value)

        heads, hidden = number("num_attention_heads"), number("hidden_size")
        latent = None
        if "kv_lora_rank" in config:
            if kind not in _LATENT:
                raise ConfigError("TP941", name=name, kind=kind, known=", ".join(_LATENT))
            latent = number("kv_lora_rank") + number("qk_rope_head_dim")
        windowed = sum(each == "sliding_attention" for each in types)
        layers = number("num_hidden_layers")
        return cls(
            model_type=kind,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=number("num_key_value_heads", heads),
            head_size=number("head_dim", hidden // heads),
            vocabulary=number("vocab_size"),
            longest=number("max_position_embeddings"),
            latent=latent,
            windowed=windowed if windowed < layers else 0,
            tied=bool(config.get("tie_word_embeddings", False)),
        )

    def kv_values(self, tensor_parallel: int) -> int:
        """Values that one GPU keeps of one token in one layer's KV cache.

        With more GPUs than KV heads each keeps one; a latent vector is on all of them. Source:
        ``get_num_kv_heads`` of vLLM's ``ModelConfig`` and its KV cache specifications.
        """
        if self.latent is not None:
            return self.latent
        return 2 * max(1, self.kv_heads // tensor_parallel) * self.head_size


@dataclass(frozen=True, slots=True)
class KvCache:
    """The paged KV cache of one GPU: senior and junior share block tables.

    A block holds ``block_size`` tokens in every layer of both models. Source: vLLM's
    ``vllm/v1/kv_cache_interface.py`` (``page_size_bytes``) and ``get_kv_cache_config_from_groups``
    in ``vllm/v1/core/kv_cache_utils.py``, of which this is the case of layers that all keep every
    token.
    """

    block_size: int
    """Tokens of a block."""
    bytes_per_block: int

    @classmethod
    def of(
        cls, models: Sequence[Geometry], width: int, tensor_parallel: int, block_size: int
    ) -> KvCache:
        """The cache of ``models`` on one GPU. width: bytes of a value."""
        values = sum(m.layers * m.kv_values(tensor_parallel) for m in models)
        return cls(block_size, block_size * values * width)

    def blocks(self, memory: int) -> int:
        """Blocks in so many bytes."""
        return max(0, memory) // self.bytes_per_block

    def responses(self, blocks: int, tokens: int) -> int:
        """How many requests of so many tokens, prompts included, are held at once.

        One block is vLLM's own.
        """
        return max(0, blocks - 1) // -(-tokens // self.block_size)

    def longest(self, blocks: int, responses: int) -> int:
        """The most tokens of each of so many requests that are held at once."""
        return max(0, blocks - 1) // responses * self.block_size


def count_parameters(config: Mapping[str, Any], geometry: Geometry) -> int | None:
    """The exact number of a family's parameters; None for families that are not known here."""
    kind = geometry.model_type
    if kind not in _DENSE and kind not in _MIXTURES:
        return None
    sparse = _sparse_layers(config, geometry)
    attention = geometry.layers * (_attention(config, geometry) + 2 * geometry.hidden)
    dense = (geometry.layers - sparse) * _mlp(config, geometry)
    mixtures = sparse * _experts(config, geometry) if sparse else 0
    return _root_parameters(geometry) + attention + dense + mixtures


def _root_parameters(geometry: Geometry) -> int:
    """Those outside the layers: embedding, output layer, last norm."""
    tables = 1 if geometry.tied else 2
    return tables * geometry.vocabulary * geometry.hidden + geometry.hidden


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
