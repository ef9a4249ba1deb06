"""Model Runner V2's model state in the speculative mode: authors, undrafted rows, drafting.

Source: vLLM's ``vllm/v1/worker/gpu/model_states/interface.py`` and ``model_runner.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.attn_utils import build_slot_mappings_by_layer

from tandem_plugin.engine.measures import SampledRows
from tandem_plugin.engine.runners.v2.authors import SlotRequest
from tandem_plugin.engine.runners.v2.state import AuthorsState
from tandem_plugin.engine.speculative.authors import ChainAuthors
from tandem_plugin.engine.speculative.draft_model import junior_of, read_step
from tandem_plugin.engine.speculative.draft_stats import Rounds
from tandem_plugin.engine.speculative.drafting import Drafting, asks_for_masks
from tandem_plugin.engine.speculative.memory import draft_memory, row_chunks, set_aside
from tandem_plugin.engine.speculative.samplers import CheckingSampler, UndraftedSampler
from tandem_plugin.errors import EngineError


@dataclass(frozen=True, slots=True)
class _Attention:
    """The inputs for running the junior over the current step's tokens."""

    metadata: dict[str, Any]
    slot_mappings: dict[str, torch.Tensor]


class SpeculativeState(AuthorsState):
    """The speculative mode's mixin for a ``ModelState``; precedes it in the bases."""

    vllm_config: Any

    def __init__(self, vllm_config: Any, model: Any, *rest: Any, **options: Any) -> None:
        super().__init__(vllm_config, model, *rest, **options)
        self.drafts = vllm_config.speculative_config.num_speculative_tokens
        self._junior = junior_of(vllm_config)
        self._junior.freeze()
        model.tandem_measures.read_by(
            partial(model._senior.compute_logits, model),
            self._junior.junior.compute_logits,
        )
        self._in_tandem = np.zeros(self.max_num_reqs, dtype=np.bool_)
        self._begins_with_senior = np.ones(self.max_num_reqs, dtype=np.bool_)
        self._entered: list[SlotRequest] = []
        self._sampler: Any = None
        self._masked = np.zeros(self.max_num_reqs, dtype=np.bool_)
        self._foreseen = np.zeros(self.max_num_reqs, dtype=np.bool_)
        self._speculator: Any = None
        self._attention: _Attention | None = None
        self._compute_logits: Any = None
        """A trainer's wrapper of the senior's ``compute_logits``, which masks drafts too."""
        self._read: tuple[Any, torch.Tensor] | None = None
        """The step's batch, and the junior's hidden states over it once computed."""

    # Device memory is allocated at the first step: see AuthorsState.
    @cached_property
    def _authors(self) -> ChainAuthors:
        return self._made(ChainAuthors)

    @cached_property
    def rounds(self) -> Rounds:
        """The draft stats."""
        return Rounds(self.max_num_reqs, self.device)

    def drafted_by(self, speculator: Any) -> None:
        """Set the speculator, which keeps the junior's hidden states for every draft."""
        self._speculator = speculator

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """vLLM's own samplers, extended by the authors."""
        if super().custom_sampler(sampler) is not None:  # type: ignore[misc]
            raise EngineError("speculative-own-sampler", kind=type(self.model).__name__)
        self._sampler = sampler
        config = self.vllm_config.speculative_config
        return UndraftedSampler(self, sampler), CheckingSampler(self, sampler, config, self.device)

    def add_request(self, req_index: int, new_req_data: Any) -> None:
        super().add_request(req_index, new_req_data)
        slot_request = self._slot_requests.get(new_req_data.req_id)
        self.rounds.begin(req_index)
        self._in_tandem[req_index] = slot_request is not None
        self._masked[req_index] = slot_request is not None and asks_for_masks(
            new_req_data.sampling_params
        )
        self._begins_with_senior[req_index] = True
        self._foreseen[req_index] = False
        if slot_request is not None:
            self._entered.append(slot_request)

    def apply_staged_writes(self) -> None:
        super().apply_staged_writes()
        for slot_request in self._entered:
            self._begins_with_senior[slot_request.slot] = slot_request.author
        self._entered.clear()

    def remove_request(self, req_id: str) -> None:
        slot_request = self._slot_requests.get(req_id)
        super().remove_request(req_id)
        if slot_request is not None:
            self._in_tandem[slot_request.slot] = False

    def prepare_attn(
        self,
        input_batch: Any,
        cudagraph_mode: Any,
        block_tables: Any,
        slot_mappings: torch.Tensor,
        attn_groups: Any,
        kv_cache_config: Any,
        **options: Any,
    ) -> Any:
        """As vLLM's own; metadata for the draft model's layers is also kept for the junior."""
        metadata = super().prepare_attn(  # type: ignore[misc]
            input_batch,
            cudagraph_mode,
            block_tables,
            slot_mappings,
            attn_groups,
            kv_cache_config,
            **options,
        )
        by_layer = build_slot_mappings_by_layer(slot_mappings, kv_cache_config)
        self._attention = _Attention(metadata, by_layer)
        return metadata

    def prepare_inputs(self, input_batch: Any, req_states: Any) -> Any:
        self._read = None
        self._ban_ids()
        return super().prepare_inputs(input_batch, req_states)

    def _ban_ids(self) -> None:
        """Mask the ids in drafts that a trainer has masked in the senior's logits."""
        masking = vars(self.model).get("compute_logits")
        if masking is not self._compute_logits:
            self._compute_logits = masking
            self._speculator.banned.copy_(self._masked_ids())

    def _masked_ids(self) -> torch.Tensor:
        """The ids masked by verl's wrapper of ``compute_logits``: bool ``[ids]``."""
        ids = self.model_config.get_vocab_size()
        self.model.tandem_probe = torch.zeros((1, ids), device=self.device)
        try:
            masked: torch.Tensor = self.model.compute_logits(None)[0] == -torch.inf
        finally:
            self.model.tandem_probe = None
        return masked

    def masks(self, batch: Any) -> Drafting | None:
        """The masks for a step's drafts; None if no request needs one."""
        slots_host = batch.idx_mapping_np
        if not self._masked[slots_host].any():
            return None
        slots = batch.idx_mapping.long()
        last = self._req_states.total_len.gpu.index_select(0, slots).long() - 1
        return Drafting(slots, slots_host, self._sampler, last)

    @property
    def request_states(self) -> Any:
        """The runner's state of every request."""
        return self._req_states

    def take(self, input_batch: Any) -> torch.Tensor | None:
        """Who writes the next token of each row: bool ``[rows]``; None if all are the senior's.

        Called once per step, by the sampler that vLLM chose for it.
        """
        authors: torch.Tensor | None = self.model.tandem_step_authors.take(input_batch.num_reqs)
        return authors

    @property
    def draft_tokens(self) -> torch.Tensor:
        """The drafts of every slot: int64 ``[size, k]``, -1 where there is none."""
        drafts: torch.Tensor = self._req_states.draft_tokens
        return drafts

    def along(self) -> torch.Tensor:
        """Who writes each position of the drafted chains: bool ``[size, k + 1]``."""
        return self._authors.along(self.draft_tokens)

    def with_undrafted(
        self, logits: torch.Tensor, input_batch: Any, authors: torch.Tensor
    ) -> torch.Tensor:
        """The logits, replaced by the junior's for undrafted tokens that it writes.

        logits: ``[rows of logits, vocabulary]``, changed in place. authors: bool ``[rows]``. The
        host knows which rows have no drafts, and runs the junior over the step's tokens only if one
        of them may be the junior's.
        """
        rows = self._undrafted(input_batch)
        if not rows.size:
            return logits
        batch_rows = async_tensor_h2d(rows, device=logits.device)
        first = input_batch.cu_num_logits_np[rows].astype(np.int64)
        places = async_tensor_h2d(first, device=logits.device)
        hidden = self._behind(input_batch, rows, places)
        whose = authors.index_select(0, batch_rows)[:, None]
        for chunk in row_chunks(len(places), logits.shape[1]):
            own, seniors = self._of_junior(hidden[chunk]), logits.index_select(0, places[chunk])
            chosen = torch.where(whose[chunk], seniors, own.to(logits.dtype))
            logits.index_copy_(0, places[chunk], chosen)
        return logits

    def foresees(self, batch: Any, foreseen: bool) -> None:
        """Set whether a step's requests continue without drafts.

        The speculator then keeps the junior's hidden state at the newest token of each.
        """
        self._foreseen[batch.idx_mapping_np] = foreseen

    def _behind(self, batch: Any, rows: NDArray[np.int64], places: torch.Tensor) -> torch.Tensor:
        """The junior's hidden states before some rows' undrafted tokens: ``[rows, hidden]``.

        places: int64 ``[rows]``, of their logits. Kept from the previous step, or computed now.
        """
        slots = batch.idx_mapping_np[rows]
        if (self._foreseen[slots] & ~batch.is_prefilling_np[rows]).all():
            kept = async_tensor_h2d(slots.astype(np.int64), device=places.device)
            hidden: torch.Tensor = self._speculator.hidden[:, 0].index_select(0, kept)
            return hidden
        return self.read(batch).index_select(0, batch.logits_indices[places])

    def with_drafted(
        self, logits: torch.Tensor, input_batch: Any, stands: torch.Tensor
    ) -> torch.Tensor:
        """The logits, replaced by the junior's for kept drafts: ``[rows of logits, vocabulary]``.

        For logprobs, which are those of the author before any parameter. logits: changed in place.
        stands: bool ``[rows of logits]``.
        """
        slots = input_batch.expanded_idx_mapping.long()
        steps = input_batch.expanded_local_pos.long().clamp(max=self.drafts - 1)
        for chunk in row_chunks(len(logits), logits.shape[1]):
            own = self._of_junior(self._speculator.hidden[slots[chunk], steps[chunk]])
            seniors = logits[chunk]
            seniors.copy_(torch.where(stands[chunk, None], own.to(logits.dtype), seniors))
        return logits

    def keep_states(self, input_batch: Any) -> None:
        """Keep both models' hidden states of a step that is to be measured.

        The junior reads the step's tokens for this: otherwise its hidden state for the token after
        a fully accepted chain of drafts would be unknown.
        """
        measures = self.model.tandem_measures
        if measures.is_due():
            rows = input_batch.logits_indices
            measures.keep(self.model.tandem_states, self.read(input_batch).index_select(0, rows))

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

    def set_memory_aside(self) -> None:
        """Show vLLM's profiling the memory of a round: see :func:`set_aside`."""
        set_aside(draft_memory(self.vllm_config), self.device)

    def _of_junior(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._junior.logits(hidden)

    def count(
        self,
        slots: torch.Tensor,
        authors: torch.Tensor,
        held: torch.Tensor,
        accepted: torch.Tensor,
        written: torch.Tensor,
    ) -> None:
        """Count a round: see :meth:`Rounds.add`."""
        counted = self._authors.in_tandem(slots)
        self.rounds.add(slots, authors, held, accepted, written, counted)

    def _further(self, slot_request: SlotRequest) -> dict[str, Any]:
        return {"tandem_draft_stats": self.rounds.of_slot(slot_request.slot).to_row()}

    def _undrafted(self, batch: Any) -> NDArray[np.int64]:
        """The rows that write an undrafted token in this step, which may be the junior's."""
        slots, prefilling = batch.idx_mapping_np, batch.is_prefilling_np
        drafted = batch.num_draft_tokens_per_req
        # vLLM pads some rows that end their prompt with placeholders, which are not drafts.
        without = np.ones_like(prefilling) if drafted is None else prefilling | (drafted == 0)
        computed = batch.num_computed_tokens_np + batch.num_scheduled_tokens
        ends = computed >= batch.prefill_len_np
        may_be_juniors = ~prefilling | ~self._begins_with_senior[slots]
        return np.flatnonzero(without & ends & self._in_tandem[slots] & may_be_juniors)

    def read(self, batch: Any) -> torch.Tensor:
        """Run the junior over the step's tokens, once per step: ``[tokens, hidden]``.

        Its cache then contains them, whether its logits are needed for a token of this step or only
        for drafts after a prompt.
        """
        if self._read is None or self._read[0] is not batch:
            attention = self._attention
            assert attention is not None
            hidden = read_step(
                self._junior, self.vllm_config, batch, attention.metadata, attention.slot_mappings
            )
            self._read = batch, hidden
        return self._read[1]
