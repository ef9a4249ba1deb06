"""vLLM's sampler and rejection sampler, extended by each token's author.

Touches: ``Sampler.__call__``, ``RejectionSampler.__call__`` and ``_verify`` of vLLM's Model Runner
V2. Versions: 0.29 to 0.32. Why: the author decides whether a draft is kept, verified or dropped.
Goes when: vLLM lets a model state decide the acceptance of drafts.

The calls of a step, their order and the letters of shapes are those of
:mod:`~tandem_plugin.engine.speculative.step`. Below the samplers are the rules of a round, as
tensor operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.sample.states import NO_LOGPROBS
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

from tandem_plugin.engine.speculative.draft_stats import RoundOutcome
from tandem_plugin.engine.speculative.step import SamplingState, VerifyingState
from tandem_plugin.errors import EngineError

if TYPE_CHECKING:
    from vllm.config import SpeculativeConfig
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.sample.output import SamplerOutput
    from vllm.v1.worker.gpu.sample.sampler import Sampler


class UndraftedSampler:
    """vLLM's sampler for steps without drafts: each token comes from its author's logits.

    Everything else that the runner uses is vLLM's sampler's own.
    """

    def __init__(self, state: SamplingState, sampler: Sampler) -> None:
        self._state = state
        self._sampler = sampler
        self._is_profiled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def __call__(self, logits: torch.Tensor, input_batch: InputBatch) -> SamplerOutput:
        if not self._is_profiled:  # vLLM's profiling begins with this call
            self._state.set_memory_aside()
            self._is_profiled = True
        authors = self._state.take_authors(input_batch)
        if authors is not None:
            self._state.keep_states(input_batch)
            logits = self._state.fill_undrafted_rows(logits, input_batch, authors)
        return self._sampler(logits, input_batch)


class AuthorRejectionSampler(RejectionSampler):  # type: ignore[misc]  # vllm is untyped here
    """vLLM's rejection sampler, applied to drafts whose author is the senior."""

    def __init__(
        self,
        state: VerifyingState,
        sampler: Sampler,
        config: SpeculativeConfig,
        device: torch.device,
    ) -> None:
        super().__init__(sampler, config, device)
        self._state = state
        self._kept_drafts: torch.Tensor | None = None
        """bool ``[size, k]``, the drafts of the junior's positions; None outside a tandem round."""

    def __call__(
        self,
        logits: torch.Tensor,
        input_batch: InputBatch,
        draft_logits: torch.Tensor | None = None,
        *invalid_drafts: torch.Tensor | None,
    ) -> SamplerOutput:
        """A round. invalid_drafts: the drafts that a grammar forbids, from vLLM 0.32."""
        authors = self._state.take_authors(input_batch)
        if authors is None:
            return super().__call__(logits, input_batch, draft_logits, *invalid_drafts)
        if draft_logits is None:
            raise EngineError("draft-logits-missing")
        self._state.keep_states(input_batch)
        slots = input_batch.idx_mapping.long()
        chain = self._state.chain_authors()
        num_drafts = self._num_drafts(input_batch)
        num_drafts_of_slots = torch.zeros(len(chain), dtype=torch.int64, device=chain.device)
        num_drafts_of_slots.scatter_(0, slots, num_drafts)
        is_kept = kept_drafts(chain, num_drafts_of_slots)
        logits = self._state.fill_undrafted_rows(logits, input_batch, authors)
        if self._wants_logprobs(input_batch):
            expanded = input_batch.expanded_idx_mapping, input_batch.expanded_local_pos
            logits = self._state.fill_kept_drafts(logits, input_batch, of_rows(is_kept, *expanded))
        self._kept_drafts = is_kept
        try:
            output = super().__call__(logits, input_batch, draft_logits, *invalid_drafts)
        finally:
            self._kept_drafts = None
        num_accepted = output.num_sampled - 1
        row_authors = chain.index_select(0, slots)
        output = self._without_juniors_bonus(output, num_drafts, row_authors)
        self._state.count_round(
            RoundOutcome(slots, row_authors, num_drafts, num_accepted, output.num_sampled)
        )
        return output

    def _without_juniors_bonus(
        self, output: SamplerOutput, num_drafts: torch.Tensor, authors: torch.Tensor
    ) -> SamplerOutput:
        """A round's output without the bonus tokens whose author is the junior."""
        dropped = is_juniors_bonus(authors, num_drafts, output.num_sampled)
        return replace(
            output,
            num_sampled=output.num_sampled - dropped.to(output.num_sampled.dtype),
            num_rejected=output.num_rejected + dropped.to(output.num_rejected.dtype),
        )

    def _num_drafts(self, batch: InputBatch) -> torch.Tensor:
        """Number of drafts to verify in each row: int64 ``[rows]``."""
        num_drafts = (batch.cu_num_logits[1:] - batch.cu_num_logits[:-1]).long() - 1
        if batch.has_prefill:  # rows that end their prompts have placeholders
            is_decoding = async_tensor_h2d(~batch.is_prefilling_np, device=num_drafts.device)
            num_drafts = num_drafts * is_decoding
        is_draft = self._state.draft_tokens.index_select(0, batch.idx_mapping.long()) >= 0
        return torch.minimum(is_draft.long().cumprod(1).sum(1), num_drafts)

    def _wants_logprobs(self, batch: InputBatch) -> bool:
        states = self.sampler.sampling_states
        return bool(states.max_num_logprobs(batch.idx_mapping_np) != NO_LOGPROBS)

    def _verify(
        self,
        logits: torch.Tensor,
        draft_logits: torch.Tensor | None,
        draft_sampled: torch.Tensor,
        pos: torch.Tensor,
        cu_num_logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        idx_mapping_np: NDArray[np.intp],
        expanded_idx_mapping: torch.Tensor,
        expanded_local_pos: torch.Tensor,
        seq_lens_upper_bound_np: NDArray[np.int32] | None = None,
        verify_draft_sampled: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As vLLM's, except that kept drafts cannot be rejected.

        seq_lens_upper_bound_np: int32 ``[rows]``, from vLLM 0.31. verify_draft_sampled: int
        ``[n]``, ``draft_sampled`` without the drafts that a grammar forbids, from 0.32. The other
        arguments are vLLM's; see its ``_verify``. Returns the processed logits
        ``[n, vocabulary]``, the tokens ``[rows, k + 1]`` and their number ``[rows]``.
        """
        layout = {
            "pos": pos,
            "idx_mapping": idx_mapping,
            "expanded_idx_mapping": expanded_idx_mapping,
            "expanded_local_pos": expanded_local_pos,
        }
        is_padding = self._placeholders(pos, expanded_idx_mapping, expanded_local_pos)
        draft_sampled = draft_sampled.masked_fill(is_padding, -1)
        verified, newer = draft_sampled, dict[str, torch.Tensor]()
        if verify_draft_sampled is not None:
            verified = verify_draft_sampled.masked_fill(is_padding, -1)
            newer = {"verify_draft_sampled": verified}
        lengths = {}
        if seq_lens_upper_bound_np is not None:
            lengths = {"seq_lens_upper_bound_np": seq_lens_upper_bound_np}
        if self._kept_drafts is None:
            result: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = super()._verify(
                logits=logits,
                draft_logits=draft_logits,
                draft_sampled=draft_sampled,
                cu_num_logits=cu_num_logits,
                idx_mapping_np=idx_mapping_np,
                **layout,
                **lengths,
                **newer,
            )
            return result
        assert draft_logits is not None
        processed = self.sampler.apply_sampling_params(
            logits=logits,
            idx_mapping_np=idx_mapping_np,
            input_ids=draft_sampled,
            **layout,
            **lengths,
        )
        is_kept = of_rows(self._kept_drafts, expanded_idx_mapping, expanded_local_pos)
        sampled, num_sampled = self._verify_by_author(
            processed, is_kept, draft_logits, verified, cu_num_logits, layout
        )
        return processed, sampled, num_sampled

    def _verify_by_author(
        self,
        processed: torch.Tensor,
        is_kept: torch.Tensor,
        draft_logits: torch.Tensor,
        verified: torch.Tensor,
        cu_num_logits: torch.Tensor,
        layout: Mapping[str, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rejection sampling of the senior's drafts: tokens ``[rows, k + 1]``, number ``[rows]``.

        The rows of a request with the drafts a, b and c, after the token t; the junior is the
        author of b's position::

            verified        t         a         b         c
            row_drafts      a         b         c         (none: bonus token)
            author          senior    junior    senior    either
            target          senior's  all on b  senior's  senior's

        is_kept: bool ``[n]``. verified: int ``[n]``, each row's last token. layout: vLLM's further
        arguments, by name.
        """
        row_drafts = verified.roll(-1).long()[:, None]
        target = force_kept_drafts(processed, is_kept, row_drafts.clamp(min=0))
        states = self.sampler.sampling_states
        sampled, num_sampled = rejection_sample(
            target_logits=target,
            draft_logits=draft_logits,
            draft_sampled=verified,
            cu_num_logits=cu_num_logits,
            temperature=states.temperature.gpu,
            seed=states.seeds.gpu,
            num_speculative_steps=self.num_speculative_steps,
            synthetic_conditional_rates=None,
            use_fp64=self.sampler.use_fp64_gumbel,
            **layout,
        )
        slots = layout["idx_mapping"].long()
        sampled = self._with_drafts_of_empty_residuals(
            sampled, num_sampled, target, draft_logits, row_drafts, cu_num_logits, slots
        )
        return sampled, num_sampled

    def _placeholders(
        self, pos: torch.Tensor, expanded_slots: torch.Tensor, expanded_steps: torch.Tensor
    ) -> torch.Tensor:
        """The rows whose draft is only padding: bool ``[rows of logits]``.

        vLLM pads a request that ends its prompt while others decode. From 0.31 on it ignores these
        drafts itself; before, it would verify them against stale values in their slot.
        """
        prompt = self.sampler.req_states.prefill_len.gpu.index_select(0, expanded_slots.long())
        is_padding: torch.Tensor = (expanded_steps > 0) & (pos - expanded_steps < prompt)
        return is_padding

    def _with_drafts_of_empty_residuals(
        self,
        sampled: torch.Tensor,
        num_sampled: torch.Tensor,
        target: torch.Tensor,
        draft_logits: torch.Tensor,
        row_drafts: torch.Tensor,
        cu_num_logits: torch.Tensor,
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """The sampled tokens, with the rejected draft as the recovered token of an empty residual.

        sampled: int64 ``[rows, k + 1]``. row_drafts: int64 ``[n, 1]``, each row's draft, -1 for a
        placeholder. slots: int64 ``[rows]``. The other arguments are vLLM's.
        """
        num_accepted = num_sampled.long() - 1
        row = cu_num_logits[:-1].long() + num_accepted
        is_rejected = row < cu_num_logits[1:] - 1
        temperature = self.sampler.sampling_states.temperature.gpu.index_select(0, slots)
        draft = draft_logits[slots, num_accepted.clamp(max=self.num_speculative_steps - 1)]
        is_empty = has_empty_residual(target.index_select(0, row), draft, temperature)
        rejected_draft, place = row_drafts.index_select(0, row), num_accepted[:, None]
        is_replaced = (is_rejected & is_empty)[:, None] & (rejected_draft >= 0)
        recovered = torch.where(is_replaced, rejected_draft, sampled.gather(1, place))
        return sampled.scatter(1, place, recovered)


def kept_drafts(authors: torch.Tensor, num_drafts: torch.Tensor) -> torch.Tensor:
    """The drafts kept as they are, because the junior is their author: bool ``[size, k]``.

    authors: bool ``[size, k + 1]``, who writes each position, true = senior. num_drafts: int64
    ``[size]``, the number of drafts in each slot.
    """
    steps = torch.arange(authors.shape[1] - 1, device=authors.device)
    return ~authors[:, :-1] & (steps < num_drafts[:, None])


def of_rows(
    by_step: torch.Tensor, expanded_slots: torch.Tensor, expanded_steps: torch.Tensor
) -> torch.Tensor:
    """The values of bool ``[size, k]`` for each row of logits: bool ``[n]``.

    expanded_slots, expanded_steps: int ``[n]``, the slot of each row and its place in the round.
    """
    steps = expanded_steps.long()
    last = by_step.shape[1] - 1
    return by_step[expanded_slots.long(), steps.clamp(max=last)] & (steps <= last)


def force_kept_drafts(
    processed: torch.Tensor, is_kept: torch.Tensor, row_drafts: torch.Tensor
) -> torch.Tensor:
    """The target's rows for rejection sampling, with all probability on each kept draft.

    Verified against the junior's own row it could be rejected: in float32 "log p > log u + log p"
    fails for some u, and the residual would be empty. processed: ``[n, vocabulary]``. is_kept: bool
    ``[n]``. row_drafts: int64 ``[n, 1]``, each row's draft.
    """
    rows = processed.masked_fill(is_kept[:, None], -torch.inf)
    restored = rows.gather(1, row_drafts).masked_fill(is_kept[:, None], 0.0)
    return rows.scatter_(1, row_drafts, restored)


def has_empty_residual(
    target: torch.Tensor, draft: torch.Tensor, temperature: torch.Tensor
) -> torch.Tensor:
    """Rows whose residual has no token to recover from a rejected draft: bool ``[rows]``.

    The residual, max(0, p - q), is empty for two models that agree to the bit. They agree on every
    draft, but in float32 "log p > log u + log p" fails for some u, about once in ten million
    drafts; vLLM would write token 0. target:
    ``[rows, vocabulary]``, processed; draft: the same before the temperature, float32 ``[rows]``.
    """
    scale = torch.where(temperature == 0, 1, temperature)[:, None]
    p, q = target.float().softmax(-1), (draft.float() / scale).softmax(-1)
    return (temperature != 0) & ~(p > q).any(-1)


def is_juniors_bonus(
    authors: torch.Tensor, num_drafts: torch.Tensor, num_sampled: torch.Tensor
) -> torch.Tensor:
    """The rows whose bonus token, after the last draft, is the junior's: bool ``[rows]``.

    It was sampled from the senior's logits, so it must be dropped. authors: bool ``[rows, k + 1]``.
    num_drafts, num_sampled: int ``[rows]``, the drafts and the sampled tokens. A row without drafts
    keeps its one token.
    """
    is_juniors = ~authors.gather(1, num_drafts[:, None])[:, 0]
    return (num_sampled == num_drafts + 1) & (num_drafts > 0) & is_juniors
