"""What the junior's drafts are sampled from: its own logits, masked as each request asks."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
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
    sampled; masks (top-k, top-p, allowed ids, stop ids before ``min_tokens``) are put on here.
    Whatever would change the values of logits is refused at the door.
    """

    slots: torch.Tensor
    """int64 ``[rows]``"""
    slots_host: NDArray[np.intp]
    sampler: Any
    """vLLM's own ``Sampler``, with every request's parameters."""
    positions: torch.Tensor
    """int64 ``[rows]``, the position of the last token that was written."""

    def masked(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """A step's logits, as each row's request asks, before the temperature.

        logits: ``[rows, vocabulary]``, the junior's. Allowed ids keep their values; the others get
        -inf.
        """
        processed = self._processed(logits, step)
        if processed is logits:
            return logits
        return logits.masked_fill(processed == -torch.inf, -torch.inf)

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


@cache
def _takes_lengths(sampler: Any) -> bool:
    """Whether vLLM's sampler is told the lengths of sequences: from 0.31."""
    return "seq_lens_upper_bound_np" in inspect.signature(sampler.apply_sampling_params).parameters
