"""vLLM's sampler and rejection sampler, extended by each token's author.

Touches: ``Sampler.__call__``, ``RejectionSampler.__call__`` and ``_verify`` of vLLM's Model Runner
V2. Versions: 0.29 to 0.32. Why: the author decides whether a draft is kept, verified or dropped.
Goes when: vLLM lets a model state decide the acceptance of drafts.

``state`` is the :class:`~tandem_plugin.engine.speculative.state.SpeculativeState`, which knows both
models and the authors. Below the samplers are the rules of a round, as tensor operations. Shapes:
``rows`` requests in a step, ``size`` slots, ``k`` drafts per round, ``n`` rows of logits: for each
request, one per draft and one after the last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.sample.states import NO_LOGPROBS
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

from tandem_plugin.errors import EngineError


class UndraftedSampler:
    """vLLM's sampler for steps without drafts: each token comes from its author's logits.

    Everything else that the runner uses is vLLM's sampler's own.
    """

    def __init__(self, state: Any, sampler: Any) -> None:
        self._state = state
        self._sampler = sampler
        self._is_profiled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def __call__(self, logits: torch.Tensor, input_batch: Any) -> Any:
        if not self._is_profiled:  # vLLM's profiling begins with this call
            self._state.set_memory_aside()
            self._is_profiled = True
        authors = self._state.take(input_batch)
        if authors is not None:
            self._state.keep_states(input_batch)
            logits = self._state.with_undrafted(logits, input_batch, authors)
        return self._sampler(logits, input_batch)


class CheckingSampler(RejectionSampler):  # type: ignore[misc]  # vllm is untyped here
    """vLLM's rejection sampler, applied to drafts whose author is the senior."""

    def __init__(self, state: Any, sampler: Any, config: Any, device: torch.device) -> None:
        super().__init__(sampler, config, device)
        self._state = state
        self._stands: torch.Tensor | None = None
        """bool ``[size, k]``, the drafts of the junior's positions; None if there are none."""

    def __call__(
        self,
        logits: torch.Tensor,
        input_batch: Any,
        draft_logits: torch.Tensor | None = None,
        *newer: Any,
    ) -> Any:
        authors = self._state.take(input_batch)
        if authors is None:
            return super().__call__(logits, input_batch, draft_logits, *newer)
        if draft_logits is None:
            raise EngineError("draft-logits-missing")
        self._state.keep_states(input_batch)
        slots = input_batch.idx_mapping.long()
        chain = self._state.along()
        held = self._drafted(input_batch)
        drafted = torch.zeros(len(chain), dtype=torch.int64, device=chain.device)
        drafted.scatter_(0, slots, held)
        stands = standing(chain, drafted)
        logits = self._state.with_undrafted(logits, input_batch, authors)
        if self._wants_logprobs(input_batch):
            expanded = input_batch.expanded_idx_mapping, input_batch.expanded_local_pos
            logits = self._state.with_drafted(logits, input_batch, of_rows(stands, *expanded))
        self._stands = stands
        try:
            output = super().__call__(logits, input_batch, draft_logits, *newer)
        finally:
            self._stands = None
        along = chain.index_select(0, slots)
        accepted = output.num_sampled - 1
        output = self._without_excess(output, held, along)
        self._state.count(slots, along, held, accepted, output.num_sampled)
        return output

    def _without_excess(self, output: Any, held: torch.Tensor, authors: torch.Tensor) -> Any:
        """Run a round, and drop the token after the last draft if its author is the junior."""
        dropped = excess(authors, held, output.num_sampled)
        return replace(
            output,
            num_sampled=output.num_sampled - dropped.to(output.num_sampled.dtype),
            num_rejected=output.num_rejected + dropped.to(output.num_rejected.dtype),
        )

    def _drafted(self, batch: Any) -> torch.Tensor:
        """Number of drafts to verify in each row: int64 ``[rows]``."""
        count = (batch.cu_num_logits[1:] - batch.cu_num_logits[:-1]).long() - 1
        if batch.has_prefill:  # rows that end their prompts have placeholders
            drafting = async_tensor_h2d(~batch.is_prefilling_np, device=count.device)
            count = count * drafting
        given = self._state.draft_tokens.index_select(0, batch.idx_mapping.long()) >= 0
        return torch.minimum(given.long().cumprod(1).sum(1), count)

    def _wants_logprobs(self, batch: Any) -> bool:
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
        idx_mapping_np: Any,
        expanded_idx_mapping: torch.Tensor,
        expanded_local_pos: torch.Tensor,
        *newer: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As vLLM's, except that kept drafts cannot be rejected.

        newer: sequence lengths, from 0.31, and the drafts without those that a grammar forbids,
        from 0.32.
        """
        nobodys = self._placeholders(pos, expanded_idx_mapping, expanded_local_pos)
        draft_sampled = draft_sampled.masked_fill(nobodys, -1)
        lengths, rest = newer[:1], newer[1:]
        verify_draft_sampled = rest[0].masked_fill(nobodys, -1) if rest else draft_sampled
        if self._stands is None:
            result: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = super()._verify(
                logits, draft_logits, draft_sampled, pos, cu_num_logits, idx_mapping,
                idx_mapping_np, expanded_idx_mapping, expanded_local_pos, *lengths,
                *([verify_draft_sampled] if rest else []),
            )  # fmt: skip
            return result
        processed = self.sampler.apply_sampling_params(
            logits, expanded_idx_mapping, idx_mapping, idx_mapping_np, pos, draft_sampled,
            expanded_local_pos, *lengths,
        )  # fmt: skip
        stands = of_rows(self._stands, expanded_idx_mapping, expanded_local_pos)
        following = verify_draft_sampled.roll(-1).long()[:, None]  # each row's draft; -1 for none
        checked = with_standing(processed, stands, following.clamp(min=0))
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

    def _placeholders(
        self, pos: torch.Tensor, expanded_slots: torch.Tensor, expanded_steps: torch.Tensor
    ) -> torch.Tensor:
        """The rows whose draft is only padding: bool ``[rows of logits]``.

        vLLM pads a request that ends its prompt while others decode. From 0.31 on it ignores these
        drafts itself; before, it would verify them against stale values in their slot.
        """
        prompt = self.sampler.req_states.prefill_len.gpu.index_select(0, expanded_slots.long())
        nobodys: torch.Tensor = (expanded_steps > 0) & (pos - expanded_steps < prompt)
        return nobodys

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
        """The sampled tokens, using the draft if its rejection left nothing to sample from."""
        accepted = num_sampled.long() - 1
        row = cu_num_logits[:-1].long() + accepted
        rejected = row < cu_num_logits[1:] - 1
        temperature = self.sampler.sampling_states.temperature.gpu.index_select(0, slots)
        draft = draft_logits[slots, accepted.clamp(max=self.num_speculative_steps - 1)]
        nothing = agreed(checked.index_select(0, row), draft, temperature)
        token, place = following.index_select(0, row), accepted[:, None]
        meant = (rejected & nothing)[:, None] & (token >= 0)
        token = torch.where(meant, token, sampled.gather(1, place))
        return sampled.scatter(1, place, token)


def standing(authors: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """The drafts kept as they are, because the junior is their author: bool ``[size, k]``.

    authors: bool ``[size, k + 1]``, who writes each position, true = senior. held: int64
    ``[size]``, the number of drafts in each slot.
    """
    steps = torch.arange(authors.shape[1] - 1, device=authors.device)
    return ~authors[:, :-1] & (steps < held[:, None])


def of_rows(
    by_step: torch.Tensor, expanded_slots: torch.Tensor, expanded_steps: torch.Tensor
) -> torch.Tensor:
    """The values of bool ``[size, k]`` for each row of logits: bool ``[n]``.

    expanded_slots, expanded_steps: int ``[n]``, the slot of each row and its place in the round.
    """
    steps = expanded_steps.long()
    last = by_step.shape[1] - 1
    return by_step[expanded_slots.long(), steps.clamp(max=last)] & (steps <= last)


def with_standing(
    processed: torch.Tensor, stands: torch.Tensor, drafted: torch.Tensor
) -> torch.Tensor:
    """The target's rows for rejection sampling, with all probability on each kept draft.

    Verified against the junior's own row it could be rejected: in float32 "log p > log u + log p"
    fails for some u, and nothing would be left to sample from. processed: ``[n, vocabulary]``.
    stands: bool ``[n]``. drafted: int64 ``[n, 1]``, each row's draft.
    """
    rows = processed.masked_fill(stands[:, None], -torch.inf)
    own = rows.gather(1, drafted).masked_fill(stands[:, None], 0.0)
    return rows.scatter_(1, drafted, own)


def agreed(target: torch.Tensor, draft: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Rows where rejecting a draft left nothing to sample from: bool ``[rows]``.

    Two models that agree to the bit agree on every draft, but in float32 "log p > log u + log p"
    fails for some u, about once in ten million drafts; vLLM would write token 0. target:
    ``[rows, vocabulary]``, processed; draft: the same before the temperature, float32 ``[rows]``.
    """
    scale = torch.where(temperature == 0, 1, temperature)[:, None]
    p, q = target.float().softmax(-1), (draft.float() / scale).softmax(-1)
    return (temperature != 0) & ~(p > q).any(-1)


def excess(authors: torch.Tensor, held: torch.Tensor, num_sampled: torch.Tensor) -> torch.Tensor:
    """The rows whose token after the last draft is the junior's: bool ``[rows]``.

    It was sampled from the senior's logits, so it must be dropped. authors: bool ``[rows, k + 1]``.
    held, num_sampled: int ``[rows]``, the drafts and the sampled tokens. A row without drafts keeps
    its one token.
    """
    juniors = ~authors.gather(1, held[:, None])[:, 0]
    return (num_sampled == held + 1) & (held > 0) & juniors
