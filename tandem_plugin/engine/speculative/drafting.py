"""What the junior's drafts are sampled from: its own logits, masked as each request asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.errors import EngineError

__all__ = ["Drafting"]


@dataclass(slots=True)
class Drafting:
    """One round's drafting: the requests it is for, and how far it is.

    A draft that stands where the junior is the author must come from the law that the request's
    sampling parameters make of the junior's logits. vLLM applies the temperature; the rest are
    masks (top-k, top-p, allowed ids, stop ids before ``min_tokens``), put on here. What would
    change the values of logits is refused at the door.
    """

    slots: torch.Tensor
    """int64 ``[rows]``"""
    slots_host: NDArray[np.intp]
    sampler: Any
    """vLLM's own ``Sampler``, with every request's parameters."""
    positions: torch.Tensor
    """int64 ``[rows]``, the position of the last token that was written."""
    hidden: torch.Tensor
    """``[size, k, hidden]``, where the junior's hidden states behind every draft are kept."""
    steps: int = 0
    """How many steps of drafting were done."""

    def masked(self, hidden_states: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """The step's logits, -inf where the row's request does not allow a token.

        logits: ``[rows, vocabulary]``, the junior's; what is allowed keeps its value.
        Raises :class:`EngineError` when the speculator drafts for other rows than expected.
        """
        if len(logits) != len(self.slots) or self.steps >= self.hidden.shape[1]:
            raise EngineError(
                f"vLLM's speculator asked for {len(logits)} rows at step {self.steps} of drafting, "
                f"but {len(self.slots)} requests were to be drafted for in {self.hidden.shape[1]} "
                "steps. This vLLM version is not supported in mode=speculative: see "
                "docs/compatibility.md."
            )
        self.hidden[:, self.steps].index_copy_(0, self.slots, hidden_states.to(self.hidden.dtype))
        positions = self.positions + self.steps
        self.steps += 1
        zeros = torch.zeros_like(self.slots, dtype=torch.int32)
        processed = self.sampler.apply_sampling_params(
            logits,
            self.slots,
            self.slots,
            self.slots_host,
            positions,
            zeros,
            zeros,
            np.zeros(len(self.slots), dtype=np.int32),
        )
        if processed is not logits:
            logits = logits.masked_fill(processed == -torch.inf, -torch.inf)
        return logits

    @property
    def is_done(self) -> bool:
        """Whether every step of the drafting passed through here."""
        return self.steps == self.hidden.shape[1]

    def check_done(self) -> None:
        """Raise :class:`EngineError` unless :attr:`is_done`."""
        if not self.is_done:
            raise EngineError(
                f"vLLM's speculator made {self.steps} of {self.hidden.shape[1]} steps of drafting "
                "through tandem's junior, so that drafts may not follow their requests' sampling "
                "parameters. This vLLM version is not supported in mode=speculative: see "
                "docs/compatibility.md."
            )
