"""Llamas of one shape as one stack: every weight has the models in front, so that one card decodes
and trains many small models at once.

A stack of one is Hugging Face's ``LlamaForCausalLM`` with tied embeddings. Prompts of a batch have
one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

Weights: TypeAlias = dict[str, Tensor]
Cache: TypeAlias = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, ``[models * batch, kv_heads, length, head_dim]``."""
_PROJECTIONS = {
    "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
_NORMS = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What of a model's configuration its operations need."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float


class Stack:
    """Weights by name, ``[models, ...]``; M is the number of models."""

    def __init__(self, sizes: Sizes, weights: Weights) -> None:
        self.sizes = sizes
        self.weights = weights
        half = torch.arange(0, sizes.head_dim, 2).float() / sizes.head_dim
        # On the device before a graph is captured: a copy from the host cannot be.
        self._frequencies = (sizes.theta**-half).to(self.device)

    @classmethod
    def of(cls, model: LlamaForCausalLM, device: torch.device) -> Stack:
        """A stack of one, float32."""
        config, state = model.config, model.state_dict()
        heads = config.num_attention_heads
        theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
        sizes = Sizes(
            config.num_hidden_layers,
            heads,
            config.num_key_value_heads,
            getattr(config, "head_dim", None) or config.hidden_size // heads,
            config.rms_norm_eps,
            theta,
        )
        names = {"embed_tokens": "embed_tokens", "norm": "norm"}
        for layer in range(sizes.layers):
            of_layer = f"layers.{layer}."
            names |= {f"{layer}.{name}": of_layer + name for name in _NORMS}
            for part, projections in _PROJECTIONS.items():
                names |= {f"{layer}.{name}": f"{of_layer}{part}.{name}" for name in projections}
        weights = {
            name: state[f"model.{source}.weight"].to(device, torch.float32)[None]
            for name, source in names.items()
        }
        return cls(sizes, weights)

    @property
    def device(self) -> torch.device:
        """Of the weights."""
        return self.weights["norm"].device

    @property
    def models(self) -> int:
        """How many."""
        return len(self.weights["norm"])

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding."""
        return self.weights["embed_tokens"].shape[1]

    def pick(self, places: Sequence[int], dtype: torch.dtype | None = None) -> Stack:
        """Copies of the models at these places, without gradients."""
        chosen = torch.tensor(places, device=self.device)
        return Stack(
            self.sizes,
            {
                name: one.detach()[chosen].to(dtype or one.dtype)
                for name, one in self.weights.items()
            },
        )

    def take(self, other: Stack) -> None:
        """Overwrite these weights with another stack's, in place."""
        for name, weight in self.weights.items():
            weight.copy_(other.weights[name].detach())

    def hidden(self, ids: Tensor, columns: Tensor, cache: Cache | None = None) -> Tensor:
        """Final states, ``[M, batch, tokens, width]``.

        ids: int64 ``[M, batch, tokens]``. columns: int64 ``[tokens]``, their positions; with a
        cache, where in it their keys and values are written.
        """
        (models, batch, tokens), sizes = ids.shape, self.sizes
        rows = models * batch
        every = torch.arange(models, device=ids.device)[:, None, None]
        x = self.weights["embed_tokens"][every, ids].view(models, batch * tokens, -1)
        angles = columns[:, None].float() * self._frequencies
        angles = torch.cat((angles, angles), -1)[:, None]
        turn = angles.cos(), angles.sin()
        seen = None
        if cache is not None:
            seen = torch.arange(cache[0][0].shape[2], device=ids.device) <= columns[:, None]
        for layer in range(sizes.layers):
            y = self._norm(x, f"{layer}.input_layernorm")
            shape = rows, tokens, -1, sizes.head_dim
            queries, keys, values = (
                self._linear(y, f"{layer}.{name}").view(shape)
                for name in ("q_proj", "k_proj", "v_proj")
            )
            queries, keys, values = (
                one.transpose(1, 2) for one in (_turned(queries, turn), _turned(keys, turn), values)
            )
            if cache is not None:
                for cached, new in zip(cache[layer], (keys, values), strict=True):
                    cached.index_copy_(2, columns, new.to(cached.dtype))
                keys, values = (cached.to(queries.dtype) for cached in cache[layer])
            attended = functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=seen, is_causal=seen is None, enable_gqa=True
            )
            attended = attended.transpose(1, 2).reshape(models, batch * tokens, -1)
            x = x + self._linear(attended, f"{layer}.o_proj")
            y = self._norm(x, f"{layer}.post_attention_layernorm")
            gated = functional.silu(self._linear(y, f"{layer}.gate_proj"))
            x = x + self._linear(gated * self._linear(y, f"{layer}.up_proj"), f"{layer}.down_proj")
        return self._norm(x, "norm").view(models, batch, tokens, -1)

    def logits(self, states: Tensor) -> Tensor:
        """``[M, n, V]`` of states ``[M, n, width]``."""
        return torch.bmm(states, self.weights["embed_tokens"].transpose(1, 2).to(states.dtype))

    def response_logits(self, ids: Tensor, start: int) -> Tensor:
        """Of each token behind a prompt of ``start`` tokens: ``[M, batch, responses, V]``."""
        models, batch, tokens = ids.shape
        states = self.hidden(ids[..., :-1], torch.arange(tokens - 1, device=ids.device))
        states = states[:, :, start - 1 :]
        return self.logits(states.flatten(1, 2)).view(models, batch, tokens - start, -1)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return torch.bmm(x, self.weights[name].transpose(1, 2))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.sizes.eps)
        return (y * self.weights[name].float()[:, None]).to(x.dtype)


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding of ``[rows, tokens, heads, head_dim]``."""
    cos, sin = turn
    first, second = x.float().chunk(2, dim=-1)
    return (x.float() * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)


class Reader:
    """Reads the same tokens with seniors and, in some of their rows, with juniors; on a GPU each
    token by one CUDA graph.

    beside: the seniors that have a junior, in the juniors' order. length: of prompt and response.
    """

    def __init__(
        self, seniors: Stack, juniors: Stack | None, beside: Sequence[int], batch: int, length: int
    ) -> None:
        device = seniors.device
        self.seniors, self.juniors = seniors, juniors
        # Kept alive for as long as the graph reads it.
        self.beside = torch.tensor(beside, device=device)
        self._caches = [
            None if stack is None else _new_cache(stack, batch, length)
            for stack in (seniors, juniors)
        ]
        self._ids = torch.zeros(seniors.models, batch, 1, dtype=torch.int64, device=device)
        self._column = torch.zeros(1, dtype=torch.int64, device=device)
        self._captured: tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor | None]] | None = None

    @torch.no_grad()
    def prompts(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits behind prompts ``[M, batch, tokens]``: the seniors' and the juniors', each
        ``[models, batch, V]``."""
        return self._forward(ids, torch.arange(ids.shape[2], device=ids.device))

    @torch.no_grad()
    def token(self, ids: Tensor, column: int) -> tuple[Tensor, Tensor | None]:
        """The same behind one more token each, ``[M, batch]``; overwritten by the next call."""
        self._ids.copy_(ids[..., None])
        self._column.fill_(column)
        if not self._ids.is_cuda:
            return self._forward(self._ids, self._column)
        if self._captured is None:
            self._captured = self._capture()
        graph, read = self._captured
        graph.replay()
        return read

    def _capture(self) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor | None]]:
        """A first pass on a side stream, as CUDA graphs need it, writes what the replay writes."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._forward(self._ids, self._column)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            read = self._forward(self._ids, self._column)
        return graph, read

    def _forward(self, ids: Tensor, columns: Tensor) -> tuple[Tensor, Tensor | None]:
        of_juniors = None
        of_seniors = self.seniors.logits(
            self.seniors.hidden(ids, columns, self._caches[0])[:, :, -1]
        )
        if self.juniors is not None:
            states = self.juniors.hidden(ids[self.beside], columns, self._caches[1])
            of_juniors = self.juniors.logits(states[:, :, -1])
        return of_seniors, of_juniors


def _new_cache(stack: Stack, batch: int, length: int) -> Cache:
    sizes = stack.sizes
    shape = stack.models * batch, sizes.kv_heads, length, sizes.head_dim
    weight = stack.weights["norm"]
    return [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in range(sizes.layers)]


class AdamW:
    """AdamW with a learning rate and a gradient norm of each model's own.

    Source: Loshchilov and Hutter (2019), as ``torch.optim.AdamW``.
    """

    def __init__(self, stack: Stack, rates: Tensor, decay: float = 0.01, clip: float = 1.0) -> None:
        """rates: ``[M]``. clip: the largest norm of a model's gradient."""
        self._stack, self._rates, self._decay, self._clip = stack, rates, decay, clip
        self._state = [
            (one.requires_grad_(), torch.zeros_like(one), torch.zeros_like(one))
            for one in stack.weights.values()
        ]
        self._steps = 0

    @torch.no_grad()
    def step(self, warm: float = 1.0) -> None:
        """Move all models, with a part of their rates, and drop the gradients."""
        self._steps += 1
        squares = [one.grad.flatten(1).pow(2).sum(1) for one, _, _ in self._state]
        norms = torch.stack(squares).sum(0).sqrt()
        scale = (self._clip / (norms + 1e-6)).clamp(max=1.0)
        for weight, mean, square in self._state:
            ones = (1,) * (weight.dim() - 1)
            gradient = weight.grad * scale.view(-1, *ones)
            mean.lerp_(gradient, 0.1)
            square.lerp_(gradient.pow(2), 0.001)
            corrected = mean / (1 - 0.9**self._steps)
            spread = (square / (1 - 0.999**self._steps)).sqrt() + 1e-8
            rate = (warm * self._rates).view(-1, *ones)
            weight.mul_(1 - rate * self._decay).sub_(rate * corrected / spread)
            weight.grad = None
