"""The speculator of Model Runner V2 in which the junior drafts.

vLLM's runner calls it for drafts at the end of every step. By then the junior's cache contains all
written tokens except the last two: the last draft was sampled but never read, and the newest token
is the senior's or was written without a draft. So a round's first pass reads these two, and each
further pass reads the previous draft; in a step with prompts the junior first reads the tokens that
the senior read. If no drafts are requested, one pass reads the newest token and its hidden state is
kept: the next token is sampled from its author's logits, as in lockstep. A round never waits for
the device, and all of its memory is fixed. If vLLM captures whole decoding steps as CUDA graphs, a
round is one graph.

Source: vLLM's ``vllm/v1/worker/gpu/spec_decode/speculator.py`` and ``model_runner.py``. Versions:
0.29 to 0.32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.attention.backend import AttentionCGSupport
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor, CudaGraphManager
from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

from tandem_plugin.engine.speculative.draft_choice import CANDIDATES, Lengths
from tandem_plugin.engine.speculative.draft_model import JuniorPass, TandemJunior, read_step
from tandem_plugin.engine.speculative.drafting import DraftMasks
from tandem_plugin.engine.speculative.step import DraftingState
from tandem_plugin.engine.wire import chooses_drafts

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.worker.gpu.block_table import BlockTables
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.states import RequestState

_FIRST, _FOLLOWING = 2, 1
"""Tokens per request read by a round's first pass, and by each later pass."""


class JuniorSpeculator(DraftModelSpeculator):  # type: ignore[misc]  # vllm is untyped here
    """Drafts ``k`` tokens for each request of a step, in ``k`` passes of the junior."""

    _graphs: RoundGraphs

    def __init__(self, vllm_config: VllmConfig, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        size, k = self.max_num_reqs, self.num_speculative_steps
        # In __init__, outside the memory pool that a sleep discards: see GPUModelRunner.
        self.hidden = torch.zeros(
            (size + 1, k, self.hidden_size), dtype=self.draft_model_config.dtype, device=device
        )
        """See :class:`~tandem_plugin.engine.speculative.step.JuniorDrafts`."""
        self._first = JuniorPass(vllm_config, _FIRST, size, device)
        self._following = JuniorPass(vllm_config, _FOLLOWING, size, device)
        self._seq_lens = torch.zeros(size, dtype=torch.int32, device=device)
        self._grows = torch.zeros(size, dtype=torch.int32, device=device)
        self._kept = torch.full((size,), size, dtype=torch.int64, device=device)
        self._columns = torch.arange(k, dtype=torch.int64, device=device)
        self._before = torch.tensor([-1, 0], device=device)
        self.banned = torch.zeros(self.vocab_size, dtype=torch.bool, device=device)
        """See :class:`~tandem_plugin.engine.speculative.step.JuniorDrafts`."""
        self._lengths = draft_lengths(vllm_config)
        self._can_skip_drafts = any(0 in lengths for lengths in self._lengths[1:])
        self.requested_drafts: int | None = None
        """Number of drafts that the scheduler requested, if the runner does not pass it: set by
        :func:`~tandem_plugin.engine.speculative.patches.draft_with_the_junior`."""

    def load_draft_model(
        self, target_model: nn.Module, target_attn_layer_names: set[str]
    ) -> TandemJunior:
        junior = TandemJunior(vllm_config=self.vllm_config)
        junior.banned = self.banned
        return junior

    def set_attn(
        self,
        model_state: DraftingState,
        kv_cache_config: KVCacheConfig,
        block_tables: BlockTables,
        *arguments: Any,
    ) -> None:
        super().set_attn(model_state, kv_cache_config, block_tables, *arguments)
        for step in (self._first, self._following):
            step.bind(kv_cache_config, block_tables, self.draft_attn_layer_names)
        model_state.set_speculator(self)

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode) -> None:
        """Graphs of rounds, if vLLM captures decoding and attention supports growing lengths."""
        whole_steps = cudagraph_mode.decode_mode() == CUDAGraphMode.FULL
        support = self._first.support.min_cg_support
        fits = self._following.fits_graphs and self._first.fits_graphs
        fits = fits and support.value >= AttentionCGSupport.UNIFORM_BATCH.value
        mode = CUDAGraphMode.FULL_DECODE_ONLY if whole_steps and fits else CUDAGraphMode.NONE
        # By the first pass's tokens: beyond vLLM's largest graph, attention plans differently.
        self._graphs = RoundGraphs(self.vllm_config, self.device, mode, _FIRST, self._lengths)

    def capture(self) -> None:
        """Capture rounds of every size, as vLLM captures its own steps."""
        if self._graphs.needs_capture():
            self._graphs.capture(
                self._round_to_capture, "Capturing CUDA graphs of the junior's rounds"
            )

    @torch.inference_mode()
    def propose(
        self,
        input_batch: InputBatch,
        attn_metadata: dict[str, Any] | None,
        slot_mappings: dict[str, torch.Tensor] | None,
        last_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        last_sampled: torch.Tensor,
        next_prefill_tokens: torch.Tensor,
        temperature: torch.Tensor,
        seeds: torch.Tensor,
        *,
        dummy_run: bool = False,
        skip_attn_for_dummy_run: bool = False,
        is_profile: bool = False,
        num_speculative_tokens: int | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """The drafts of each request: int64 ``[requests, k]``, padded with -1.

        Called like vLLM's own speculators, after the step's tokens were written to the runner's
        state. num_speculative_tokens: the number of drafts that the scheduler requested, if the
        runner passes it.
        """
        requests = input_batch.num_reqs
        self.temperature.copy_(temperature)
        self.seeds.copy_(seeds)
        if dummy_run:
            if is_profile:  # the maximum number of tokens that the junior reads at once
                read_step(self.model, self.vllm_config, input_batch, None, None)
            self._draft_padding(requests, has_caches=not skip_attn_for_dummy_run)
        else:
            length = self._round_length(num_speculative_tokens)
            self._run_round(input_batch, length)
            # Placeholder ids if there are none: the warm-up verifies some anyway.
            self.draft_tokens[:requests, length:] = -1 if length else 0
        drafts: torch.Tensor = self.draft_tokens
        return drafts[:requests]

    def _round_length(self, passed: int | None) -> int:
        """Number of drafts in this round. passed: the scheduler's request, from the runner."""
        requested = self.requested_drafts if passed is None else passed
        most: int = self.num_speculative_steps
        # Until 0.31, vLLM's warm-up requests none but means the maximum.
        if requested is None or not (requested or self._can_skip_drafts):
            return most
        return min(requested, most)

    def _draft_padding(self, rows: int, *, has_caches: bool) -> None:
        """A round of full length over padding only, for vLLM's profiling and dummy steps."""
        self._fill_with_padding()
        metadata_of = self._metadata_per_pass(rows, None, self._first)
        self._draft(rows, metadata_of if has_caches else _no_metadata, self.num_speculative_steps)

    def _run_round(self, batch: InputBatch, length: int) -> None:
        """Run the round after a step, as one graph if there is one of its size and length.

        What the first pass reads of a request whose newest tokens are x and y. The junior has not
        read y, nor x if it is the last draft of the step's own round.

        ======  ==============================  ==========  ==========================
        length  the step                        reads       as a graph
        ======  ==============================  ==========  ==========================
        k > 0   any                             x y         unless requests have masks
        0       without drafts or with prompts  y           yes
        0       with drafts                     x y         no
        ======  ==============================  ==========  ==========================

        A step's prompts are read before the round, with all other tokens of the step.
        """
        state: DraftingState = self.model_state
        requests = batch.num_reqs
        has_prompts = bool(batch.is_prefilling_np.any())
        if has_prompts:
            state.read(batch)
        self._fill(batch.idx_mapping.long(), state.request_states)
        masks = state.draft_masks(batch) if length else None
        longest = batch.seq_lens_cpu_upper_bound[:requests]
        has_unread_draft = not length and not has_prompts and batch.num_draft_tokens > 0
        graph = None
        if masks is None and not has_unread_draft:
            graph = self._graphs.of(requests, length)
        if graph is not None:
            self._build_for_graph(graph.num_reqs, longest, length)
            self._graphs.run_fullgraph(graph)
        else:
            first = self._first if length or has_unread_draft else self._following
            metadata_of = self._metadata_per_pass(requests, longest, first)
            if length:
                self._draft(requests, metadata_of, length, masks)
            else:
                self._read_newest(first, requests, metadata_of)
        state.keep_next_hidden(batch, is_kept=not length)

    def _fill(self, slots: torch.Tensor, states: RequestState) -> None:
        """Prepare everything about a round that depends on the batch.

        slots: int64 ``[requests]``. states: the runner's, with the step's tokens.
        """
        requests, last = len(slots), self.max_model_len - 1
        newest = states.num_computed_tokens.gpu.index_select(0, slots).long().clamp(1, last)
        places = newest[:, None] + self._before
        tokens = states.all_token_ids.gpu[slots[:, None], places]
        self._first.input_ids[: tokens.numel()].copy_(tokens.flatten())
        self._first.positions[: tokens.numel()].copy_(places.flatten())
        self._following.input_ids[:requests].copy_(tokens[:, 1])
        self._following.positions[:requests].copy_(newest)
        self._fill_with_padding()
        self.idx_mapping[:requests].copy_(slots)
        self._kept[:requests].copy_(slots)
        self._seq_lens[:requests].copy_(newest + 1)
        self._grows[:requests].fill_(1)
        for step in (self._first, self._following):
            step.lay_out(requests)

    def _fill_with_padding(self) -> None:
        """Mark all rows as padding, as vLLM does, so that their results are discarded."""
        self.idx_mapping.fill_(-1)
        self._kept.fill_(self.max_num_reqs)
        self._seq_lens.zero_()
        self._grows.zero_()
        for step in (self._first, self._following):
            step.lay_out(0)

    def _draft(
        self, rows: int, metadata_of: _MetadataOf, length: int, masks: DraftMasks | None = None
    ) -> None:
        """A round of ``length`` passes over ``rows``, padding included; the content of a graph.

        Without drafts it is one pass over the newest tokens.
        """
        if not length:
            self._read_newest(self._following, rows, metadata_of)
            return
        self._sample(self._first.run(self.model, rows, self.idx_mapping, metadata_of(0)), 0, masks)
        following = self._following
        for step in range(1, length):
            following.input_ids[:rows].copy_(self.draft_tokens[:rows, step - 1])
            following.positions[:rows].add_(1).clamp_(max=self.max_model_len - 1)
            self._seq_lens.add_(self._grows).clamp_(max=self.max_model_len)
            hidden = following.run(self.model, rows, self.idx_mapping, metadata_of(step))
            self._sample(hidden, step, masks)

    def _read_newest(self, kind: JuniorPass, rows: int, metadata_of: _MetadataOf) -> None:
        """Keep the junior's hidden states at the newest tokens, for sampling in the next step."""
        hidden = kind.run(self.model, rows, self.idx_mapping, metadata_of(0))
        self._keep(hidden, 0)

    def _keep(self, hidden: torch.Tensor, step: int) -> None:
        kept_rows = self._kept[: len(hidden)]
        self.hidden[:, step].index_copy_(0, kept_rows, hidden.to(self.hidden.dtype))

    def _sample(self, hidden: torch.Tensor, step: int, masks: DraftMasks | None) -> None:
        """Sample a draft for each row, and keep its distribution.

        hidden: ``[rows, hidden]``, the junior's at the tokens read last.
        """
        rows = len(hidden)
        slots = self.idx_mapping[:rows]
        self._keep(hidden, step)
        logits = self.model.logits(hidden)
        if masks is not None:
            logits = masks.masked(logits, step)
        sampled = gumbel_sample(
            logits,
            slots,
            self.temperature,
            self.seeds,
            self._following.positions[:rows],
            apply_temperature=True,
            is_drafting=True,
            logits_cache=self.draft_logits,
            logits_cache_col=self._columns[step],
            use_fp64=self.use_fp64_gumbel,
        )
        self.draft_tokens[:rows, step] = sampled.masked_fill(slots < 0, 0)

    def _metadata_per_pass(
        self, rows: int, longest: torch.Tensor | None, first: JuniorPass
    ) -> _MetadataOf:
        """Metadata that the host builds before each pass, as attention backends usually do.

        longest: int32 ``[rows]`` on the host, an upper bound of the tokens that the senior has
        read; None for the maximum length. first: the first pass.
        """

        def metadata_of(step: int) -> dict[str, Any]:
            passes = self._following if step else first
            return passes.metadata(rows, self._seq_lens[:rows], self._longest(rows, longest, step))

        return metadata_of

    def _longest(self, rows: int, longest: torch.Tensor | None, step: int) -> torch.Tensor:
        """Upper bounds of a pass's lengths: int32 ``[rows]`` on the host."""
        most = torch.full((rows,), self.max_model_len, dtype=torch.int32)
        if longest is not None:
            most[: len(longest)] = (longest + 1 + step).clamp(max=self.max_model_len)
            most[len(longest) :] = 0
        return most

    def _build_for_graph(
        self, rows: int, longest: torch.Tensor | None, length: int, *, capturing: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Metadata for both kinds of passes, in the memory that a graph over ``rows`` reads."""
        seq_lens, last = self._seq_lens[:rows], max(length - 1, 0)
        return (
            self._first.metadata(
                rows, seq_lens, self._longest(rows, longest, 0), capturing=capturing
            ),
            self._following.metadata(
                rows, seq_lens, self._longest(rows, longest, last), capturing=capturing
            ),
        )

    def _round_to_capture(
        self, desc: RoundDescriptor, warmup: bool
    ) -> Callable[[CUDAGraphMode], None]:
        """A round over padding only, for vLLM's graph manager."""
        rows, length = desc.num_reqs, desc.drafts
        self._fill_with_padding()
        first, following = self._build_for_graph(rows, None, length, capturing=True)

        def metadata_of(step: int) -> dict[str, Any]:
            if not step:
                return first if length else following
            self._following.refresh(following)
            return following

        return lambda mode: self._draft(rows, metadata_of, length)


_MetadataOf = Callable[[int], dict[str, Any] | None]
"""A pass's attention metadata, by its index in the round."""


def _no_metadata(step: int) -> None:
    """No metadata: vLLM is profiling and there are no caches."""


@dataclass(frozen=True)
class RoundDescriptor(BatchExecutionDescriptor):  # type: ignore[misc]  # vllm is untyped here
    """The key of a round's graph: vLLM's description, and the number of drafts."""

    drafts: int = 0


class RoundGraphs(CudaGraphManager):  # type: ignore[misc]
    """vLLM's graph manager, for rounds: each batch size has one number of drafts.

    Touches: ``CudaGraphManager``'s captures and dispatch, by a subclass. Versions: 0.29 to 0.32.
    Why: vLLM's speculators keep graphs for a single number of drafts. Goes when: a manager supports
    one draft length per batch size.
    """

    _capture_descs: dict[CUDAGraphMode, list[BatchExecutionDescriptor]]

    def __init__(
        self,
        vllm_config: VllmConfig,
        device: torch.device,
        mode: CUDAGraphMode,
        width: int,
        lengths: Lengths,
    ) -> None:
        """width: tokens per request, for sizes. lengths: from :func:`draft_lengths`."""
        super().__init__(_without_table(vllm_config), device, mode, width)
        self._width = width
        self._capture_descs = {
            kind: list(_of_lengths(descs, lengths)) for kind, descs in self._capture_descs.items()
        }
        self._captured = {desc for descs in self._capture_descs.values() for desc in descs}

    def of(self, requests: int, drafts: int) -> RoundDescriptor | None:
        """The graph for a batch and a number of drafts; None if there is none."""
        desc = self.dispatch(requests, self._width * requests, self._width, 0)
        graph = RoundDescriptor(**vars(desc), drafts=drafts)
        return graph if graph in self._captured else None


def _of_lengths(
    descs: list[BatchExecutionDescriptor], lengths: Lengths
) -> Iterator[RoundDescriptor]:
    """The graphs for the batch sizes of each of vLLM's descriptions, in their order."""
    sizes = sorted(desc.num_reqs for desc in descs)
    for desc in descs:
        smaller = max((size for size in sizes if size < desc.num_reqs), default=0)
        of_sizes = set().union(*lengths[smaller + 1 : desc.num_reqs + 1])
        for drafts in sorted(of_sizes, reverse=True):
            yield RoundDescriptor(**vars(desc), drafts=drafts)


def draft_lengths(vllm_config: VllmConfig) -> Lengths:
    """The numbers of drafts of each batch size up to the largest; the first entry is for size 0.

    One number per size, but for ``drafts: auto``, whose table is chosen after startup.
    """
    speculative, largest = vllm_config.speculative_config, vllm_config.scheduler_config.max_num_seqs
    most = speculative.num_speculative_tokens
    if chooses_drafts(vllm_config.additional_config):
        return [frozenset(CANDIDATES)] * (largest + 1)
    table = speculative.num_speculative_tokens_per_batch_size
    if table is None:
        return [frozenset([most])] * (largest + 1)
    lengths: list[int] = build_dynamic_sd_schedule_lookup(table, largest, most)
    return [frozenset([length]) for length in lengths]


def _without_table(vllm_config: VllmConfig) -> VllmConfig:
    """A configuration from which vLLM's manager does not create the senior's steps."""
    plain = copy(vllm_config)
    plain.speculative_config = copy(vllm_config.speculative_config)
    plain.speculative_config.num_speculative_tokens_per_batch_size = None
    return plain
