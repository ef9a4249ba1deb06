"""One step of the speculative mode: its calls in order, and what its objects ask of each other.

vLLM's runner creates the state, the two samplers and the speculator, and calls them; whatever else
they need of each other is in the protocols below. The calls of a step:

1. ``state.prepare_attn`` and ``prepare_inputs`` keep the step's attention metadata and post the
   author of each row's next token.
2. The senior's forward pass and ``compute_logits`` read the tokens of the step, drafts included.
3. The sampler, :class:`~.samplers.UndraftedSampler` in a step without drafts and
   :class:`~.samplers.AuthorRejectionSampler` otherwise, takes those authors: ``take_authors``.
4. ``keep_states`` keeps both models' hidden states, in a step that is measured.
5. With drafts: ``chain_authors`` gives the author of every draft and of the bonus token.
6. ``fill_undrafted_rows`` replaces the logits of undrafted tokens that the junior writes; with
   drafts and logprobs, ``fill_kept_drafts`` those of drafts that the junior wrote.
7. vLLM samples: undrafted tokens, and by rejection sampling the senior's drafts. A bonus token of
   the junior's is dropped, and ``count_round`` counts the outcome.
8. ``state.postprocess_state`` advances the authors by the tokens written.
9. The speculator's ``propose`` drafts for the next step: after ``read``, if the step had prompts,
   it takes the newest tokens from ``request_states`` and the masks from ``draft_masks``, and
   reports by ``keep_next_hidden`` whether the next step will be without drafts.

Before the first step the speculator hands itself over (``set_speculator``) and the profiled sampler
calls ``set_memory_aside``.

Shapes: ``rows`` requests in a step, ``size`` slots, ``k`` drafts per round, ``n`` rows of logits:
for each request, one per draft and one after the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from tandem_plugin.engine.speculative.draft_stats import RoundOutcome
from tandem_plugin.engine.speculative.drafting import DraftMasks

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch
    from vllm.v1.worker.gpu.states import RequestState


class SamplingState(Protocol):
    """What every sampler asks of the state, in this order."""

    def set_memory_aside(self) -> None:
        """Show vLLM's profiling the memory of a round: see
        :func:`~tandem_plugin.engine.speculative.memory.set_aside`. Called once."""

    def take_authors(self, batch: InputBatch) -> torch.Tensor | None:
        """Who writes the next token of each row: bool ``[rows]``, true = senior.

        None if all are the senior's. Called once per step, by the sampler that vLLM chose for it.
        """

    def keep_states(self, batch: InputBatch) -> None:
        """Keep both models' hidden states of a step that is to be measured."""

    def fill_undrafted_rows(
        self, logits: torch.Tensor, batch: InputBatch, authors: torch.Tensor
    ) -> torch.Tensor:
        """The logits, replaced by the junior's for undrafted tokens that it writes.

        logits: ``[n, vocabulary]``, changed in place. authors: bool ``[rows]``.
        """


class VerifyingState(SamplingState, Protocol):
    """What the rejection sampler asks of the state in a step with drafts."""

    @property
    def draft_tokens(self) -> torch.Tensor:
        """The drafts of every slot: int64 ``[size, k]``, -1 where there is none."""

    def chain_authors(self) -> torch.Tensor:
        """Who writes each position of the drafted chains: bool ``[size, k + 1]``."""

    def fill_kept_drafts(
        self, logits: torch.Tensor, batch: InputBatch, is_kept: torch.Tensor
    ) -> torch.Tensor:
        """The logits, replaced by the junior's for kept drafts: ``[n, vocabulary]``.

        For logprobs, which are those of the author before any parameter. logits: changed in place.
        is_kept: bool ``[n]``.
        """

    def count_round(self, outcome: RoundOutcome) -> None:
        """Count a round's drafts."""


class DraftingState(Protocol):
    """What the speculator asks of the state."""

    def set_speculator(self, speculator: JuniorDrafts) -> None:
        """Set the speculator, once vLLM has allocated its caches."""

    @property
    def request_states(self) -> RequestState:
        """The runner's state of every request, with the step's tokens."""

    def read(self, batch: InputBatch) -> torch.Tensor:
        """Run the junior over the step's tokens, once per step: ``[tokens, hidden]``."""

    def draft_masks(self, batch: InputBatch) -> DraftMasks | None:
        """The masks for a round's drafts; None if no request needs one."""

    def keep_next_hidden(self, batch: InputBatch, *, is_kept: bool) -> None:
        """Set whether the speculator kept the junior's hidden state at each request's newest token.

        It does if these requests continue without drafts.
        """


class JuniorDrafts(Protocol):
    """What the state asks of the speculator: two tensors at fixed addresses."""

    hidden: torch.Tensor
    """The junior's hidden states for every draft of each slot: ``[size + 1, k, hidden]``.

    The last row is for padding. If no drafts were requested, the next token is sampled from the
    first one.
    """
    banned: torch.Tensor
    """bool ``[vocabulary]``, the ids that no draft may be; the graphs of rounds read it."""
