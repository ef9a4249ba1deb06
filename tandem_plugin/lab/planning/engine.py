"""What a tandem engine takes of one GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

from tandem_plugin.engine.speculative.memory import CHUNK_BYTES, draft_bytes
from tandem_plugin.lab.planning.geometry import Geometry
from tandem_plugin.lab.planning.kv_cache import KvCache
from tandem_plugin.lab.planning.wanted import Wanted

__all__ = ["FORMULAS", "EngineMemory", "engine_memory", "kv_cache"]

FORMULAS = {
    "engine activations": "max_num_batched_tokens x bytes of a value x (2 x senior's hidden + "
    "junior's hidden + the wider model's layer: the larger of 3 x intermediate and 2 x queries + "
    "keys + values, over tensor parallelism) + max_num_seqs x token ids x (two heads' logits and "
    "12 bytes: a copy in float32, and sorted ids)",
}
_SORTED = 12
"""Bytes of a logit in float32 and of a token id, where vLLM's profiling sorts."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Bytes on one GPU, beside the KV cache."""

    senior: int
    junior: int
    activations: int
    """An estimate: :data:`FORMULAS`."""
    drafts: int
    """What drafting keeps and what a round of it takes; 0 in lockstep."""

    @property
    def weights(self) -> int:
        """Both models'."""
        return self.senior + self.junior

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.activations + self.drafts


def kv_cache(wanted: Wanted, tensor_parallel: int) -> KvCache:
    """The KV cache that an engine of both models has."""
    models = (wanted.senior.geometry, wanted.junior.geometry)
    return KvCache.of(models, wanted.width, tensor_parallel, wanted.block_size)


def engine_memory(wanted: Wanted, tensor_parallel: int) -> EngineMemory:
    """Weights are divided evenly; an embedding's padding and repeated norms are not counted."""
    senior, junior = wanted.senior, wanted.junior
    return EngineMemory(
        senior.weights(wanted.width) // tensor_parallel,
        junior.weights(wanted.width) // tensor_parallel,
        _activations(wanted, tensor_parallel),
        _drafts(wanted),
    )


def _activations(wanted: Wanted, tensor_parallel: int) -> int:
    senior, junior = wanted.senior.geometry, wanted.junior.geometry
    layer = max(layer_width(senior), layer_width(junior)) // tensor_parallel
    token = wanted.width * (2 * senior.hidden + junior.hidden + layer)
    logits = senior.vocabulary * (2 * wanted.width + _SORTED)
    return wanted.batched_tokens * token + wanted.requests * logits


def layer_width(model: Geometry) -> int:
    """The most values of one token within a layer."""
    attention = 2 * (model.heads + model.kv_heads) * model.head_size
    return max(3 * model.intermediate, attention)


def _drafts(wanted: Wanted) -> int:
    if not wanted.drafts:
        return 0
    vocabulary = wanted.senior.geometry.vocabulary
    found = draft_bytes(
        requests=wanted.requests,
        drafts=wanted.drafts,
        vocabulary=vocabulary,
        head=wanted.width,
        hidden=wanted.junior.geometry.hidden * wanted.width,
        batch=wanted.batched_tokens,
        chunk=max(1, CHUNK_BYTES // (vocabulary * 4)),
    )
    return found.kept + found.a_round - found.logits
