"""Model Runner V2's model state in the speculative mode: authors, undrafted rows, drafting.

Source: vLLM's ``vllm/v1/worker/gpu/model_states/interface.py`` and ``model_runner.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer

from tandem_plugin.engine.measures import SampledRows
from tandem_plugin.engine.runners.v2.authors import SlotRequest
from tandem_plugin.engine.runners.v2.state import AuthorsState
from tandem_plugin.engine.speculative.authors import ChainAuthors
from tandem_plugin.engine.speculative.draft_model import StepReading, junior_of
from tandem_plugin.engine.speculative.draft_stats import DraftCounters, RoundOutcome
from tandem_plugin.engine.speculative.drafting import DraftMasks, asks_for_masks
from tandem_plugin.engine.speculative.memory import draft_memory, row_chunks, set_aside
from tandem_plugin.engine.speculative.samplers import AuthorRejectionSampler, UndraftedSampler
from tandem_plugin.engine.speculative.slot_flags import SlotFlags
from tandem_plugin.engine.speculative.step import JuniorDrafts
from tandem_plugin.errors import EngineError

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.core.sched.output import NewRequestData
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.sample.sampler import Sampler
    from vllm.v1.worker.gpu.states import RequestState
    from vllm.v1.worker.utils import AttentionGroup

    from tandem_plugin.engine.speculative.senior import SpeculativeSenior


class SpeculativeState(AuthorsState):
    """The speculative mode's mixin for a ``ModelState``; precedes it in the bases."""

    vllm_config: VllmConfig
    model: SpeculativeSenior

    def __init__(
        self, vllm_config: VllmConfig, model: SpeculativeSenior, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(vllm_config, model, *arguments, **options)
        self.drafts = vllm_config.speculative_config.num_speculative_tokens
        self._junior = junior_of(vllm_config)
        self._junior.freeze()
        model.tandem_measures.read_by(
            partial(model._senior.compute_logits, model),
            self._junior.junior.compute_logits,
        )
        self._flags = SlotFlags(self.max_num_reqs)
        self._reading = StepReading(self._junior, vllm_config)
        self._entered: list[SlotRequest] = []
        self._sampler: Sampler | None = None
        """vLLM's own, with every request's parameters."""
        self._speculator: JuniorDrafts | None = None
        self._compute_logits: Callable[..., Any] | None = None
        """A trainer's wrapper of the senior's ``compute_logits``, which masks drafts too."""

    # Device memory is allocated at the first step: see AuthorsState.
    @cached_property
    def _authors(self) -> ChainAuthors:
        return self._made(ChainAuthors)

    @cached_property
    def draft_counters(self) -> DraftCounters:
        """The outcomes of drafts, by slot and of the engine."""
        return DraftCounters(self.max_num_reqs, self.device)

    # Called by vLLM's runner.

    def custom_sampler(self, sampler: Sampler) -> tuple[UndraftedSampler, AuthorRejectionSampler]:
        """vLLM's own samplers, extended by the authors."""
        if super().custom_sampler(sampler) is not None:  # type: ignore[misc]
            raise EngineError("speculative-own-sampler", kind=type(self.model).__name__)
        self._sampler = sampler
        config = self.vllm_config.speculative_config
        return UndraftedSampler(self, sampler), AuthorRejectionSampler(
            self, sampler, config, self.device
        )

    def add_request(self, req_index: int, new_req_data: NewRequestData) -> None:
        super().add_request(req_index, new_req_data)
        slot_request = self._slot_requests.get(new_req_data.req_id)
        self.draft_counters.begin(req_index)
        in_tandem = slot_request is not None
        has_masks = in_tandem and asks_for_masks(new_req_data.sampling_params)
        self._flags.enter(req_index, in_tandem=in_tandem, has_masks=has_masks)
        if slot_request is not None:
            self._entered.append(slot_request)

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        for slot_request in self._entered:
            self._flags.begins_with_senior[slot_request.slot] = slot_request.author
        self._entered.clear()

    def remove_request(self, req_id: str) -> None:
        slot_request = self._slot_requests.get(req_id)
        super().remove_request(req_id)
        if slot_request is not None:
            self._flags.in_tandem[slot_request.slot] = False

    def prepare_attn(
        self,
        input_batch: InputBatch,
        cudagraph_mode: CUDAGraphMode,
        block_tables: tuple[torch.Tensor, ...],
        slot_mappings: torch.Tensor,
        attn_groups: list[list[AttentionGroup]],
        kv_cache_config: KVCacheConfig,
        **options: Any,
    ) -> dict[str, Any]:
        """As vLLM's own; metadata for the draft model's layers is also kept for the junior."""
        metadata: dict[str, Any] = super().prepare_attn(  # type: ignore[misc]
            input_batch,
            cudagraph_mode,
            block_tables,
            slot_mappings,
            attn_groups,
            kv_cache_config,
            **options,
        )
        by_layer = build_slot_mappings_by_layer(slot_mappings, kv_cache_config)
        self._reading.set_attention(metadata, by_layer)
        return metadata

    def prepare_inputs(self, input_batch: InputBatch, req_states: RequestState) -> Any:
        self._reading.begin_step()
        self._ban_ids()
        return super().prepare_inputs(input_batch, req_states)

    def _ban_ids(self) -> None:
        """Mask the ids in drafts that a trainer has masked in the senior's logits."""
        masking = vars(self.model).get("compute_logits")
        if masking is not self._compute_logits:
            self._compute_logits = masking
            self._junior_drafts.banned.copy_(self._masked_ids())

    def _masked_ids(self) -> torch.Tensor:
        """The ids masked by verl's wrapper of ``compute_logits``: bool ``[ids]``."""
        ids = self.model_config.get_vocab_size()
        self.model.tandem_probe = torch.zeros((1, ids), device=self.device)
        try:
            logits = self.model.compute_logits(None)
        finally:
            self.model.tandem_probe = None
        assert logits is not None
        return logits[0] == -torch.inf

    def _sampled_rows(self, slots: torch.Tensor, num_sampled: torch.Tensor) -> SampledRows:
        """The outcomes of the rows whose logits a round computed, several per request."""
        batch = self._batch
        of_row, steps = batch.expanded_idx_mapping.long(), batch.expanded_local_pos.long()
        count = torch.zeros(self.max_num_reqs, dtype=torch.int64, device=self.device)
        written = count.scatter_(0, slots, num_sampled.long()).index_select(0, of_row)
        total = self._req_states.total_len.gpu.index_select(0, of_row).long()
        return self._rows(
            of_row,
            np.repeat(batch.idx_mapping_np, np.diff(batch.cu_num_logits_np)),
            self._authors.at(of_row, steps),
            self._authors.lengths(of_row) + steps,
            steps < written,
            total - written + steps,
        )

    def _further(self, slot_request: SlotRequest) -> dict[str, Any]:
        return {"tandem_draft_stats": self.draft_counters.of_slot(slot_request.slot).to_row()}

    # Called by the samplers, as SamplingState and VerifyingState in step.py say.

    def set_memory_aside(self) -> None:
        set_aside(draft_memory(self.vllm_config), self.device)

    def take_authors(self, batch: InputBatch) -> torch.Tensor | None:
        authors = self.model.tandem_step_authors.take(batch.num_reqs)
        assert not isinstance(authors, np.ndarray), "Model Runner V2 keeps authors on the device"
        return authors

    def keep_states(self, batch: InputBatch) -> None:
        # The junior reads the step's tokens for this: its hidden state for the token after a fully
        # accepted chain of drafts would otherwise be unknown.
        measures = self.model.tandem_measures
        if measures.is_due():
            rows, seniors = batch.logits_indices, self.model.tandem_states
            assert seniors is not None
            measures.keep(seniors, self.read(batch).index_select(0, rows))

    @property
    def draft_tokens(self) -> torch.Tensor:
        drafts: torch.Tensor = self._req_states.draft_tokens
        return drafts

    def chain_authors(self) -> torch.Tensor:
        return self._authors.chain_authors(self.draft_tokens)

    def fill_undrafted_rows(
        self, logits: torch.Tensor, batch: InputBatch, authors: torch.Tensor
    ) -> torch.Tensor:
        # The host knows which rows have no drafts, and runs the junior over the step's tokens only
        # if one of them may be the junior's.
        rows = self._flags.undrafted_rows(batch)
        if not rows.size:
            return logits
        batch_rows = async_tensor_h2d(rows, device=logits.device)
        first = batch.cu_num_logits_np[rows].astype(np.int64)
        places = async_tensor_h2d(first, device=logits.device)
        hidden = self._undrafted_hidden(batch, rows, places)
        is_seniors = authors.index_select(0, batch_rows)[:, None]
        for chunk in row_chunks(len(places), logits.shape[1]):
            juniors = self._junior.logits(hidden[chunk])
            seniors = logits.index_select(0, places[chunk])
            chosen = torch.where(is_seniors[chunk], seniors, juniors.to(logits.dtype))
            logits.index_copy_(0, places[chunk], chosen)
        return logits

    def _undrafted_hidden(
        self, batch: InputBatch, rows: NDArray[np.int64], places: torch.Tensor
    ) -> torch.Tensor:
        """The junior's hidden states before some rows' undrafted tokens: ``[rows, hidden]``.

        places: int64 ``[rows]``, of their logits. Kept from the previous step, or computed now.
        """
        slots = batch.idx_mapping_np[rows]
        if (self._flags.has_next_hidden[slots] & ~batch.is_prefilling_np[rows]).all():
            slot_ids = async_tensor_h2d(slots.astype(np.int64), device=places.device)
            hidden: torch.Tensor = self._junior_drafts.hidden[:, 0].index_select(0, slot_ids)
            return hidden
        return self.read(batch).index_select(0, batch.logits_indices[places])

    def fill_kept_drafts(
        self, logits: torch.Tensor, batch: InputBatch, is_kept: torch.Tensor
    ) -> torch.Tensor:
        slots = batch.expanded_idx_mapping.long()
        steps = batch.expanded_local_pos.long().clamp(max=self.drafts - 1)
        for chunk in row_chunks(len(logits), logits.shape[1]):
            juniors = self._junior.logits(self._junior_drafts.hidden[slots[chunk], steps[chunk]])
            seniors = logits[chunk]
            seniors.copy_(torch.where(is_kept[chunk, None], juniors.to(logits.dtype), seniors))
        return logits

    def count_round(self, outcome: RoundOutcome) -> None:
        self.draft_counters.add(outcome, self._authors.in_tandem(outcome.slots))

    # Called by the speculator, as DraftingState in step.py says.

    def set_speculator(self, speculator: JuniorDrafts) -> None:
        self._speculator = speculator

    @property
    def _junior_drafts(self) -> JuniorDrafts:
        assert self._speculator is not None, "vLLM sets attention up before the first step"
        return self._speculator

    @property
    def request_states(self) -> RequestState:
        return self._req_states

    def read(self, batch: InputBatch) -> torch.Tensor:
        return self._reading.hidden(batch)

    def draft_masks(self, batch: InputBatch) -> DraftMasks | None:
        slots_host = batch.idx_mapping_np
        if not self._flags.has_masks[slots_host].any():
            return None
        slots = batch.idx_mapping.long()
        last = self._req_states.total_len.gpu.index_select(0, slots).long() - 1
        return DraftMasks(slots, slots_host, self._sampler, last)

    def keep_next_hidden(self, batch: InputBatch, *, is_kept: bool) -> None:
        self._flags.has_next_hidden[batch.idx_mapping_np] = is_kept
