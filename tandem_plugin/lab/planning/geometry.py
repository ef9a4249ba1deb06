"""What a checkpoint's ``config.json`` says of the sizes of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tandem_plugin.errors import ConfigError

__all__ = ["Geometry"]

_LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
"""Families whose keys and values vLLM keeps as one latent vector (MLA)."""

_NEITHER = "tandem takes text models whose layers are all attention. Choose one"


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a decoder-only model, in the words of Hugging Face's configurations."""

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    """The width that one token passes in a layer's MLP: of a mixture, of all its chosen experts."""
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
            raise ConfigError(f"{name!r} ({kind}) is multimodal: {_NEITHER}.")
        if others := {*types} - {"full_attention", "sliding_attention"}:
            raise ConfigError(f"{name!r} ({kind}) has layers of {sorted(others)}: {_NEITHER}.")

        def number(key: str, default: int | None = None) -> int:
            value = config.get(key)
            value = default if value is None else value
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"The config.json of {name!r} ({kind or 'no model_type'}) gives {key}="
                    f"{value!r}, and a plan needs a positive number there: only decoder-only "
                    "models whose configuration names its sizes as Llama's does can be planned."
                )
            return int(value)

        heads, hidden = number("num_attention_heads"), number("hidden_size")
        latent = None
        if "kv_lora_rank" in config:
            if kind not in _LATENT:
                raise ConfigError(
                    f"{name!r} ({kind}) has latent attention, of which only {', '.join(_LATENT)} "
                    "can be planned."
                )
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
            intermediate=_intermediate(config, number),
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


def _intermediate(config: Mapping[str, Any], number: Any) -> int:
    chosen = config.get("num_experts_per_tok")
    if not chosen:
        return int(number("intermediate_size"))
    width = number("moe_intermediate_size", config.get("intermediate_size"))
    return int(width * number("num_experts_per_tok"))
