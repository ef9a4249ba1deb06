"""How many tokens of both models fit into an engine's KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tandem_plugin.lab.planning.geometry import Geometry

__all__ = ["KvCache"]


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
