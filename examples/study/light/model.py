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

    @property
    def width(self) -> int:
        """Of all heads together."""
        return self.num_attention_heads * self.head_dim


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


class _Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.hidden_size, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, shape.width, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, shape.width, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, eps=shape.rms_norm_eps)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, layer: int
    ) -> Tensor:
        batch, length, _ = x.shape
        heads = (batch, length, self.shape.num_attention_heads, self.shape.head_dim)
        queries = _turned(self.q_norm(self.q_proj(x).view(heads)).transpose(1, 2), turn)
        keys = _turned(self.k_norm(self.k_proj(x).view(heads)).transpose(1, 2), turn)
        values = self.v_proj(x).view(heads).transpose(1, 2)
        if cache is not None:
            keys, values = cache.extend(layer, keys, values)
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=length > 1)
        out: Tensor = self.o_proj(seen.transpose(1, 2).reshape(batch, length, self.shape.width))
        return out


class _MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = _Attention(shape)
        self.mlp = _MLP(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, layer: int
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, cache, layer)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class _Decoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)


class LanguageModel(nn.Module):
    """A decoder with tied embeddings. Parameters have the names of ``Qwen3ForCausalLM``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = _Decoder(shape)
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
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    torch.save({"shape": asdict(model.shape), "weights": model.state_dict()}, temporary)
    temporary.rename(file)


def load_model(file: Path) -> LanguageModel:
    """Read what :func:`save_model` wrote."""
    saved = torch.load(file, weights_only=True)
    model = LanguageModel(Shape(**saved["shape"]))
    model.load_state_dict(saved["weights"])
    return model.eval()
