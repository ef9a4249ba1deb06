"""A small Qwen3 in plain PyTorch: Hugging Face's parameters and results, with less around.

A model of a hundred thousand parameters spends its time on the way to its matrix products. This one
takes a batch of prompts of one length, and keeps keys and values in tensors made once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tandem_plugin.files import replacing


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model, as Qwen3's configuration names them."""

    vocab_size: int
    hidden_size: int = 64
    intermediate_size: int = 192
    num_hidden_layers: int = 2
    num_attention_heads: int = 2
    head_dim: int = 32
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0


class Cache:
    """Keys and values of every layer, float32 ``[layers, 2, batch, heads, length, head_dim]``."""

    def __init__(self, shape: Shape, batch: int, length: int) -> None:
        self.held = torch.zeros(
            shape.num_hidden_layers, 2, batch, shape.num_attention_heads, length, shape.head_dim
        )
        self.filled = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """All of a layer's up to these, which are ``[batch, heads, new, head_dim]``."""
        stop = self.filled + keys.shape[2]
        held = self.held[layer]
        held[0, :, :, self.filled : stop] = keys
        held[1, :, :, self.filled : stop] = values
        return held[0, :, :, :stop], held[1, :, :, :stop]


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        size, inner = shape.hidden_size, shape.intermediate_size
        width = shape.num_attention_heads * shape.head_dim
        sides = {"q_proj": (size, width), "k_proj": (size, width), "v_proj": (size, width)}
        self.self_attn = _linears(**sides, o_proj=(width, size))
        for name in ("q_norm", "k_norm"):
            self.self_attn[name] = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)
        self.mlp = _linears(gate_proj=(size, inner), up_proj=(size, inner), down_proj=(inner, size))
        self.input_layernorm = nn.RMSNorm(size, eps=shape.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(size, eps=shape.rms_norm_eps)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, layer: int
    ) -> Tensor:
        x = x + self._attend(self.input_layernorm(x), turn, cache, layer)
        y, mlp = self.post_attention_layernorm(x), self.mlp
        out: Tensor = x + mlp.down_proj(functional.silu(mlp.gate_proj(y)) * mlp.up_proj(y))
        return out

    def _attend(
        self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, layer: int
    ) -> Tensor:
        batch, length, _ = x.shape
        heads = (batch, length, self.shape.num_attention_heads, self.shape.head_dim)
        own = self.self_attn
        queries = _turned(own.q_norm(own.q_proj(x).view(heads)).transpose(1, 2), turn)
        keys = _turned(own.k_norm(own.k_proj(x).view(heads)).transpose(1, 2), turn)
        values = own.v_proj(x).view(heads).transpose(1, 2)
        if cache is not None:
            keys, values = cache.extend(layer, keys, values)
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=length > 1)
        out: Tensor = own.o_proj(seen.transpose(1, 2).flatten(2))
        return out


def _linears(**sizes: tuple[int, int]) -> nn.ModuleDict:
    """Linear maps without biases, by name: from and to so many values."""
    made = {name: nn.Linear(*size, bias=False) for name, size in sizes.items()}
    return nn.ModuleDict(made)


class LanguageModel(nn.Module):
    """A decoder with tied embeddings. Parameters have the names of ``Qwen3ForCausalLM``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(shape.vocab_size, shape.hidden_size),
                "layers": nn.ModuleList(_Layer(shape) for _ in range(shape.num_hidden_layers)),
                "norm": nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps),
            }
        )
        frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        self.register_buffer("frequencies", frequencies, persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        nn.init.normal_(self.model.embed_tokens.weight, std=0.1)

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for ``length`` tokens of each of ``batch`` rows."""
        return Cache(self.shape, batch, length)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits, float32 ``[batch, length, V]``, of int64 ``ids`` ``[batch, length]``.

        With a cache the ids come after what it holds, all of them or one at a time.
        """
        start = 0 if cache is None else cache.filled
        angles = torch.outer(torch.arange(start, start + ids.shape[1]).float(), self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        turn = (angles.cos(), angles.sin())
        x = self.model.embed_tokens(ids)
        for place, layer in enumerate(self.model.layers):
            x = layer(x, turn, cache, place)
        if cache is not None:
            cache.filled += ids.shape[1]
        return functional.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def response_logits(self, ids: Tensor, start: int) -> Tensor:
        """Of each token behind a prompt of ``start`` tokens: float32 ``[batch, responses, V]``."""
        return self(ids[:, :-1])[:, start - 1 :]


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding of ``[batch, heads, length, head_dim]``."""
    cos, sin = turn
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def save_model(model: LanguageModel, file: Path) -> None:
    """Write shape and weights, whole or not at all."""
    with replacing(file) as temporary:
        torch.save({"shape": asdict(model.shape), "weights": model.state_dict()}, temporary)


def load_model(file: Path) -> LanguageModel:
    """Read what :func:`save_model` wrote."""
    saved = torch.load(file, weights_only=True)
    model = LanguageModel(Shape(**saved["shape"]))
    model.load_state_dict(saved["weights"])
    return model.eval()
