"""The junior as vLLM's draft model, and its forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import nn
from vllm.config.compilation import CUDAGraphMode
from vllm.forward_context import BatchDescriptor, set_forward_context
from vllm.v1.worker.gpu.attn_utils import (
    build_attn_metadata,
    build_slot_mappings_by_layer,
    init_attn_backend,
)

from tandem_plugin.engine.heads import in_seniors_ids
from tandem_plugin.engine.junior import load_junior
from tandem_plugin.engine.layer_tensors import kept_tensors
from tandem_plugin.errors import EngineError

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.worker.gpu.block_table import BlockTables
    from vllm.v1.worker.gpu.input_batch import InputBatch

_juniors: WeakValueDictionary[int, TandemJunior] = WeakValueDictionary()
"""A weak reference: a junior is freed with its engine, even if a second engine starts later."""


class TandemJunior(nn.Module):
    """The draft model that vLLM sees; it contains the junior."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        # Not through nn.Module.__setattr__, which would register the junior as a submodule.
        object.__setattr__(self, "junior", load_junior(vllm_config))
        self.tandem_junior_tensors = kept_tensors(self.junior)
        self.config = self.junior.config
        target = vllm_config.speculative_config.target_model_config
        self._vocabulary = int(target.get_vocab_size())
        self.banned: torch.Tensor | None = None
        """bool ``[vocabulary]``, the banned ids; None if there are none."""
        self._frozen = False
        _juniors[_key(vllm_config)] = self

    junior: Any

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The junior's hidden states: ``[tokens, hidden]``."""
        hidden: torch.Tensor = self.junior(input_ids, positions)
        return hidden

    def logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The junior's own logits over the senior's ids: ``[rows, vocabulary]``.

        Banned ids get -inf.
        """
        logits: torch.Tensor = self.junior.compute_logits(hidden_states)
        logits = in_seniors_ids(logits, self._vocabulary)
        return logits if self.banned is None else logits.masked_fill_(self.banned, -torch.inf)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load nothing: the junior was loaded when it was built, and is frozen.

        Raises :class:`EngineError` for any load after startup.
        """
        if self._frozen:
            raise EngineError("draft-weights-sent")
        return set()

    def freeze(self) -> None:
        """Mark the end of startup: weights sent here from now on are an error."""
        self._frozen = True

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Every tensor of the junior, since vLLM's sleep at level 2 keeps buffers."""
        if recurse:
            yield from (
                (prefix + name, tensor) for name, tensor in self.tandem_junior_tensors.items()
            )


def junior_of(vllm_config: VllmConfig) -> TandemJunior:
    """The junior built most recently in this process.

    Raises :class:`EngineError` if vLLM drafts with a different model.
    """
    junior = _juniors.get(_key(vllm_config))
    if junior is None:
        raise EngineError("foreign-speculator")
    return junior


def _key(vllm_config: VllmConfig) -> int:
    """Engine and draft model share one compilation config: attention layers register in it."""
    return id(vllm_config.compilation_config)


class JuniorPass:
    """Forward passes over ``width`` tokens for each of up to ``size`` requests.

    All inputs of a pass are at fixed addresses, so a CUDA graph can contain passes. Rows beyond the
    batch are padding: they have no tokens, and their results are discarded. Each kind of pass has
    its own metadata builders, because these hold the tensors that a graph reads.
    """

    def __init__(
        self, vllm_config: VllmConfig, width: int, size: int, device: torch.device
    ) -> None:
        self._vllm_config, self._width, self._device = vllm_config, width, device
        self.input_ids = torch.zeros(size * width, dtype=torch.int32, device=device)
        self.positions = torch.zeros(size * width, dtype=torch.int64, device=device)
        self._starts = torch.zeros(size + 1, dtype=torch.int32, device=device)
        self._every = torch.arange(size + 1, dtype=torch.int32, device=device) * width

    def bind(
        self, kv_cache_config: KVCacheConfig, block_tables: BlockTables, layers: set[str]
    ) -> None:
        """Set the caches once they are allocated. layers: the names of the junior's layers."""
        self._kv_cache_config, self._block_tables = kv_cache_config, block_tables
        self._groups, self.support, _ = init_attn_backend(
            kv_cache_config, self._vllm_config, self._device, active_layer_names=layers
        )
        size = block_tables.num_kv_cache_groups, len(self.input_ids)
        self._slots = torch.zeros(size, dtype=torch.int64, device=self._device)

    @property
    def fits_graphs(self) -> bool:
        """Whether every attention backend follows lengths that grow within a CUDA graph."""
        return all(
            group.supports_draft_decode_metadata_update
            for groups in self._groups
            for group in groups
        )

    def lay_out(self, requests: int) -> None:
        """Set the number of requests in the next batch; all other rows are padding."""
        torch.clamp(self._every, max=requests * self._width, out=self._starts)

    def metadata(
        self, rows: int, seq_lens: torch.Tensor, longest: torch.Tensor, *, capturing: bool = False
    ) -> dict[str, Any]:
        """The attention metadata of a pass over ``rows``, padding included.

        seq_lens: int32 ``[rows]`` on the device, this pass's tokens included. longest: int32
        ``[rows]`` on the host, an upper bound.
        """
        metadata: dict[str, Any] = build_attn_metadata(
            attn_groups=self._groups,
            num_reqs=rows,
            num_tokens=rows * self._width,
            query_start_loc_gpu=self._starts[: rows + 1],
            query_start_loc_cpu=torch.arange(rows + 1, dtype=torch.int32) * self._width,
            max_query_len=self._width,
            seq_lens=seq_lens,
            max_seq_len=int(longest.max()),
            block_tables=[table[:rows] for table in self._block_tables.input_block_tables],
            slot_mappings=self._slots[:, : rows * self._width],
            kv_cache_config=self._kv_cache_config,
            seq_lens_cpu_upper_bound=longest,
            positions=self.positions[: rows * self._width],
            is_prefilling=torch.zeros(rows, dtype=torch.bool),
            for_cudagraph_capture=capturing,
        )
        return metadata

    def refresh(self, metadata: dict[str, Any]) -> None:
        """Update existing metadata to the current lengths, on the device only."""
        for groups in self._groups:
            for group in groups:
                group.update_draft_decode_metadata(metadata)

    def run(
        self,
        junior: TandemJunior,
        rows: int,
        slots: torch.Tensor,
        metadata: dict[str, Any] | None,
    ) -> torch.Tensor:
        """The junior's hidden states at the last token of each row: ``[rows, hidden]``.

        slots: int ``[rows]``, the slot of each row's request. metadata: None while vLLM profiles,
        before there are caches.
        """
        tokens, by_layer = rows * self._width, None
        if metadata is not None:
            mapped = self._block_tables.compute_slot_mappings(
                slots[:rows], self._starts[: rows + 1], self.positions, tokens, out=self._slots
            )
            by_layer = build_slot_mappings_by_layer(mapped, self._kv_cache_config)
        hidden = _forward(
            junior,
            self._vllm_config,
            self.input_ids[:tokens],
            self.positions[:tokens],
            metadata,
            by_layer,
        )
        return hidden.view(rows, self._width, -1)[:, -1]


def read_step(
    junior: TandemJunior,
    vllm_config: VllmConfig,
    batch: InputBatch,
    metadata: dict[str, Any] | None,
    slot_mappings: dict[str, torch.Tensor] | None,
) -> torch.Tensor:
    """The junior's hidden states over a step's own tokens, padding included: ``[tokens, hidden]``.

    metadata, slot_mappings: the step's, which include the junior's layers; its cache then contains
    these tokens. None while vLLM profiles.
    """
    tokens = batch.num_tokens_after_padding
    ids, positions = batch.input_ids[:tokens], batch.positions[:tokens]
    return _forward(junior, vllm_config, ids, positions, metadata, slot_mappings)


class StepReading:
    """Runs the junior over a step's tokens, at most once per step.

    Its cache then contains them, whether its logits are needed for a token of this step, for a
    measurement, or only for drafts after a prompt.
    """

    def __init__(self, junior: TandemJunior, vllm_config: VllmConfig) -> None:
        self._junior, self._vllm_config = junior, vllm_config
        self._attention: tuple[dict[str, Any], dict[str, torch.Tensor]] | None = None
        self._done: tuple[InputBatch, torch.Tensor] | None = None

    def set_attention(
        self, metadata: dict[str, Any], slot_mappings: dict[str, torch.Tensor]
    ) -> None:
        """Set the next step's attention metadata and slot mappings, by layer."""
        self._attention = metadata, slot_mappings

    def begin_step(self) -> None:
        """Declare that the next step's batch follows."""
        self._done = None

    def hidden(self, batch: InputBatch) -> torch.Tensor:
        """The junior's hidden states, padding included: ``[tokens, hidden]``."""
        if self._done is None or self._done[0] is not batch:
            assert self._attention is not None, "vLLM prepares attention before it samples"
            self._done = batch, read_step(self._junior, self._vllm_config, batch, *self._attention)
        return self._done[1]


def _forward(
    junior: TandemJunior,
    vllm_config: VllmConfig,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    metadata: dict[str, Any] | None,
    slot_mappings: dict[str, torch.Tensor] | None,
) -> torch.Tensor:
    tokens = len(input_ids)
    with set_forward_context(
        metadata,
        vllm_config,
        num_tokens=tokens,
        cudagraph_runtime_mode=CUDAGraphMode.NONE,
        slot_mapping=slot_mappings,
        batch_descriptor=BatchDescriptor(num_tokens=tokens),
    ):
        hidden: torch.Tensor = junior(input_ids, positions)
    return hidden
