"""vLLM's sampler and rejection sampler, told who writes each token.

Touches: ``Sampler.__call__``, ``RejectionSampler.__call__`` and ``_verify`` of vLLM's Model Runner
V2. Versions: 0.32. Why: the author decides whether a draft stands, is checked, or is no token at
all. Goes when: vLLM lets a model state decide the acceptance of drafts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.sample.states import NO_LOGPROBS
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

from tandem_plugin.errors import EngineError

if TYPE_CHECKING:
    from tandem_plugin.engine.speculative.state import SpeculativeState

__all__ = ["CheckingSampler", "UndraftedSampler"]


class UndraftedSampler:
    """vLLM's sampler for steps without drafts: each token comes from its author's logits.

    All else that the runner asks of a sampler is the sampler's own.
    """

    def __init__(self, state: SpeculativeState, sampler: Any) -> None:
        self._state = state
        self._sampler = sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def __call__(self, logits: torch.Tensor, input_batch: Any) -> Any:
        authors = self._state.take(input_batch)
        if authors is not None:
            logits = self._state.with_undrafted(logits, input_batch, authors)
        return self._sampler(logits, input_batch)


class CheckingSampler(RejectionSampler):  # type: ignore[misc]  # vllm is untyped here
    """vLLM's rejection sampler, for the drafts that the senior would have to write."""

    def __init__(
        self, state: SpeculativeState, sampler: Any, config: Any, device: torch.device
    ) -> None:
        super().__init__(sampler, config, device)
        self._state = state
        self._stands: torch.Tensor | None = None
        """bool ``[size, k]``, the drafts that stand because the junior is their author; None for a
        round without requests in tandem."""

    def __call__(
        self,
        logits: torch.Tensor,
        input_batch: Any,
        draft_logits: torch.Tensor | None = None,
        invalid_drafts: torch.Tensor | None = None,
    ) -> Any:
        authors = self._state.take(input_batch)
        if authors is None:
            return super().__call__(logits, input_batch, draft_logits, invalid_drafts)
        if draft_logits is None:
            raise EngineError(
                "The junior's drafts came without their logits, so that the senior could not check "
                "them exactly. This vLLM version is not supported in mode='speculative'."
            )
        slots = input_batch.idx_mapping.long()
        chain = self._state.along()
        held = self._drafted(input_batch)
        drafted = torch.zeros(len(chain), dtype=torch.int64, device=chain.device)
        drafted.scatter_(0, slots, held)
        steps = torch.arange(chain.shape[1] - 1, device=chain.device)
        stands = ~chain[:, :-1] & (steps < drafted[:, None])
        logits = self._state.with_undrafted(logits, input_batch, authors)
        if self._wants_logprobs(input_batch):
            juniors = self._expanded(stands, input_batch)[:, None]
            own = self._state.junior_rows(input_batch).to(logits.dtype)
            logits = torch.where(juniors, own, logits)
        self._stands = stands
        try:
            output = super().__call__(logits, input_batch, draft_logits, invalid_drafts)
        finally:
            self._stands = None
        along = chain.index_select(0, slots)
        accepted = output.num_sampled - 1
        output = self._without_excess(output, held, along)
        self._state.count(slots, along, held, accepted, output.num_sampled)
        return output

    def _without_excess(self, output: Any, held: torch.Tensor, authors: torch.Tensor) -> Any:
        """A round without the token behind its last draft where that is the junior's.

        The senior's logits were all there was to sample it from. held: int64 ``[rows]``, the drafts
        of each row. authors: bool ``[rows, k + 1]``. A row without drafts keeps its one token.
        """
        juniors = ~authors.gather(1, held[:, None])[:, 0]
        excess = (output.num_sampled == held + 1) & (held > 0) & juniors
        return replace(
            output,
            num_sampled=output.num_sampled - excess.to(output.num_sampled.dtype),
            num_rejected=output.num_rejected + excess.to(output.num_rejected.dtype),
        )

    def _drafted(self, batch: Any) -> torch.Tensor:
        """How many drafts of each row are to be checked: int64 ``[rows]``."""
        count = (batch.cu_num_logits[1:] - batch.cu_num_logits[:-1]).long() - 1
        if batch.has_prefill:  # what rows that end their prompts have are placeholders
            drafting = async_tensor_h2d(~batch.is_prefilling_np, device=count.device)
            count = count * drafting
        given = self._state.draft_tokens.index_select(0, batch.idx_mapping.long()) >= 0
        return torch.minimum(given.long().cumprod(1).sum(1), count)

    def _wants_logprobs(self, batch: Any) -> bool:
        states = self.sampler.sampling_states
        return bool(states.max_num_logprobs(batch.idx_mapping_np) != NO_LOGPROBS)

    def _expanded(self, by_step: torch.Tensor, batch: Any) -> torch.Tensor:
        """Of bool ``[size, k]``, what holds for each row of logits."""
        return _of_rows(by_step, batch.expanded_idx_mapping, batch.expanded_local_pos)

    def _verify(
        self,
        logits: torch.Tensor,
        draft_logits: torch.Tensor | None,
        draft_sampled: torch.Tensor,
        pos: torch.Tensor,
        cu_num_logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        idx_mapping_np: Any,
        expanded_idx_mapping: torch.Tensor,
        expanded_local_pos: torch.Tensor,
        seq_lens_upper_bound_np: Any,
        verify_draft_sampled: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As vLLM's, where a draft that stands is checked against itself and so is never rejected.

        Against the junior's own row it could be: in float32 "log p > log u + log p" fails for some
        u, and nothing would be left to sample from.
        """
        if self._stands is None:
            result: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = super()._verify(
                logits, draft_logits, draft_sampled, pos, cu_num_logits, idx_mapping,
                idx_mapping_np, expanded_idx_mapping, expanded_local_pos,
                seq_lens_upper_bound_np, verify_draft_sampled,
            )  # fmt: skip
            return result
        processed = self.sampler.apply_sampling_params(
            logits, expanded_idx_mapping, idx_mapping, idx_mapping_np, pos, draft_sampled,
            expanded_local_pos, seq_lens_upper_bound_np,
        )  # fmt: skip
        stands = _of_rows(self._stands, expanded_idx_mapping, expanded_local_pos)
        following = verify_draft_sampled.roll(-1).long()[:, None]  # each row's draft; -1 for none
        drafted = following.clamp(min=0)
        checked = processed.masked_fill(stands[:, None], -torch.inf)
        checked.scatter_(1, drafted, checked.gather(1, drafted).masked_fill(stands[:, None], 0.0))
        sampled, num_sampled = rejection_sample(
            checked, draft_logits, verify_draft_sampled, cu_num_logits, pos, idx_mapping,
            expanded_idx_mapping, expanded_local_pos, self.sampler.sampling_states.temperature.gpu,
            self.sampler.sampling_states.seeds.gpu, self.num_speculative_steps, None,
            use_fp64=self.sampler.use_fp64_gumbel,
        )  # fmt: skip
        sampled = self._with_agreed(
            sampled,
            num_sampled,
            checked,
            draft_logits,
            following,
            cu_num_logits,
            idx_mapping.long(),
        )
        return processed, sampled, num_sampled

    def _with_agreed(
        self,
        sampled: torch.Tensor,
        num_sampled: torch.Tensor,
        checked: torch.Tensor,
        draft_logits: Any,
        following: torch.Tensor,
        cu_num_logits: torch.Tensor,
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """The sampled tokens, with the draft where its rejection left nothing to sample from.

        Two models that agree to the bit agree on every draft, but in float32 "log p > log u + log
        p" fails for some u, about once in ten million drafts, and vLLM would write token 0.
        """
        accepted = num_sampled.long() - 1
        row = cu_num_logits[:-1].long() + accepted
        rejected = row < cu_num_logits[1:] - 1
        temperature = self.sampler.sampling_states.temperature.gpu.index_select(0, slots)
        scale = torch.where(temperature == 0, 1, temperature)[:, None]
        draft = draft_logits[slots, accepted.clamp(max=self.num_speculative_steps - 1)]
        p = checked.index_select(0, row).float().softmax(-1)
        q = (draft.float() / scale).softmax(-1)
        token, place = following.index_select(0, row), accepted[:, None]
        agreed = (rejected & (temperature != 0) & ~(p > q).any(-1))[:, None] & (token >= 0)
        token = torch.where(agreed, token, sampled.gather(1, place))
        return sampled.scatter(1, place, token)


def _of_rows(
    by_step: torch.Tensor, expanded_slots: torch.Tensor, expanded_steps: torch.Tensor
) -> torch.Tensor:
    """Of bool ``[size, k]``, what holds for each row of logits: bool ``[rows of logits]``."""
    steps = expanded_steps.long()
    last = by_step.shape[1] - 1
    return by_step[expanded_slots.long(), steps.clamp(max=last)] & (steps <= last)
