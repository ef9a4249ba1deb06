"""What the junior's drafts are sampled from: its own logits, masked as each request asks."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Drafting", "asks_for_masks"]

_NOTHING: dict[str, Any] = {
    "top_p": 1.0,
    "min_p": 0.0,
    "min_tokens": 0,
    "allowed_token_ids": None,
    "logit_bias": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""Parameters that a draft's logits follow, each with the value that asks for nothing."""


def asks_for_masks(params: Any) -> bool:
    """Whether a request's sampling parameters change more of its logits than their temperature."""
    if params.top_k > 0:
        return True
    return any(getattr(params, name, nothing) != nothing for name, nothing in _NOTHING.items())


@dataclass
class Drafting:
    """One round's drafting, where a request asks for more than a temperature.

    A draft that stands where the junior is the author must come from the law that the request's
    sampling parameters make of the junior's logits. The temperature is applied where drafts are
    sampled; masks (top-k, top-p, allowed ids, stop ids before ``min_tokens``) and penalties are put
    on here. Whatever else would change the values of logits is refused at the door.
    """

    slots: torch.Tensor
    """int64 ``[rows]``"""
    slots_host: NDArray[np.intp]
    sampler: Any
    """vLLM's own ``Sampler``, with every request's parameters."""
    positions: torch.Tensor
    """int64 ``[rows]``, the position of the last token that was written."""
    _counted: list[torch.Tensor] = field(default_factory=list)
    """Drafts of this round that vLLM's counts of a response's tokens hold for now."""

    def masked(self, logits: torch.Tensor, step: int, drafts: torch.Tensor) -> torch.Tensor:
        """A step's logits, as each row's request asks, before the temperature.

        logits: ``[rows, vocabulary]``, the junior's; what is allowed keeps its value where the
        request has no penalties, and -inf stands for what is not. drafts: int64 ``[rows, step]``,
        the round's so far. Steps come in their order, and :meth:`end` behind the last.
        """
        if self._penalised is not None and step:
            self._count(drafts[:, -1])
        processed = self._processed(logits, step)
        if processed is logits:
            return logits
        if self._penalised is not None:
            logits = torch.where(
                self._penalised[:, None], processed * self._temperature, logits.float()
            )
        return logits.masked_fill(processed == -torch.inf, -torch.inf)

    def end(self) -> None:
        """The round is over: vLLM's counts are those of what was written."""
        for tokens in self._counted:
            self._add_to_counts(tokens, -1)
        self._counted.clear()

    def _processed(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """vLLM's processed logits, the same object where no row's request asks for anything."""
        zeros = torch.zeros_like(self.slots, dtype=torch.int32)
        takes_lengths = _takes_lengths(type(self.sampler))  # type: ignore[arg-type]
        lengths = [np.zeros(len(self.slots), dtype=np.int32)] if takes_lengths else []
        processed: torch.Tensor = self.sampler.apply_sampling_params(
            logits,
            self.slots,
            self.slots,
            self.slots_host,
            self.positions + step,
            zeros,
            zeros,
            *lengths,
        )
        return processed

    @cached_property
    def _penalised(self) -> torch.Tensor | None:
        """The rows whose requests have penalties: bool ``[rows]``; None where none has."""
        uses = self.sampler.penalties_state.use_penalty[self.slots_host]
        if not uses.any():
            return None
        return torch.from_numpy(uses).to(self.slots.device, non_blocking=True)

    @cached_property
    def _temperature(self) -> torch.Tensor:
        """What vLLM divided each row's logits by: float32 ``[rows, 1]``."""
        temperature = self.sampler.sampling_states.temperature.gpu.index_select(0, self.slots)
        return torch.where(temperature == 0, 1, temperature)[:, None]

    def _count(self, tokens: torch.Tensor) -> None:
        """Let vLLM's penalties see a draft as a token of its response, until the round is over."""
        tokens = tokens.long().clone()
        self._add_to_counts(tokens, 1)
        self._counted.append(tokens)

    def _add_to_counts(self, tokens: torch.Tensor, by: int) -> None:
        counts = self.sampler.penalties_state.output_bin_counts
        change = torch.full((), by, dtype=counts.dtype, device=counts.device)
        counts.index_put_((self.slots, tokens), change, accumulate=True)


@cache
def _takes_lengths(sampler: Any) -> bool:
    """Whether vLLM's sampler is told the lengths of sequences: from 0.31."""
    return "seq_lens_upper_bound_np" in inspect.signature(sampler.apply_sampling_params).parameters
