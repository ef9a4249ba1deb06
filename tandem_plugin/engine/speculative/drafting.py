"""The distribution of drafts: the junior's own logits, masked according to each request."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.worker.gpu.sample.sampler import Sampler

_NEUTRAL: dict[str, Any] = {
    "top_p": 1.0,
    "min_p": 0.0,
    "min_tokens": 0,
    "allowed_token_ids": None,
    "logit_bias": None,
}
"""Parameters that apply to a draft's logits, each with its neutral value."""


def asks_for_masks(params: SamplingParams) -> bool:
    """Whether a request's sampling parameters change its logits beyond the temperature."""
    if params.top_k > 0:
        return True
    return any(getattr(params, name, neutral) != neutral for name, neutral in _NEUTRAL.items())


@dataclass
class DraftMasks:
    """The masks of one round's drafts, if a request has more parameters than a temperature.

    A draft kept as the junior's token must follow the distribution that the request's sampling
    parameters give for the junior's logits. The temperature is applied when drafts are sampled;
    masks (top-k, top-p, allowed ids, stop ids before ``min_tokens``) are applied here. Admission
    rejects parameters that would change the values of logits.
    """

    slots: torch.Tensor
    """int64 ``[rows]``"""
    slots_host: NDArray[np.intp]
    sampler: Sampler
    """vLLM's own ``Sampler``, with every request's parameters."""
    positions: torch.Tensor
    """int64 ``[rows]``, the position of the last written token."""

    def masked(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """A step's logits, masked according to each row's request, before the temperature.

        logits: ``[rows, vocabulary]``, the junior's. Allowed ids keep their values; the others get
        -inf.
        """
        processed = self._processed(logits, step)
        if processed is logits:
            return logits
        return logits.masked_fill(processed == -torch.inf, -torch.inf)

    def _processed(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """vLLM's processed logits; the same object if no row's request has parameters."""
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
def _takes_lengths(sampler: type[Sampler]) -> bool:
    """Whether vLLM's sampler takes sequence lengths: from 0.31."""
    return "seq_lens_upper_bound_np" in inspect.signature(sampler.apply_sampling_params).parameters
