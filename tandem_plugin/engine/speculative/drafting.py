"""What the junior's drafts are sampled from: its own logits, masked as each request asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tandem_plugin.errors import EngineError

__all__ = ["Drafting"]


@dataclass
class Drafting:
    """One round's drafting: the requests it is for, and how far it is.

    A draft that stands where the junior is the author must come from the law that the request's
    sampling parameters make of the junior's logits. vLLM applies the temperature; masks (top-k,
    top-p, allowed ids, stop ids before ``min_tokens``) and penalties are put on here. Whatever else
    would change the values of logits is refused at the door.
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
    length: int
    """How many tokens are drafted in this round, at most k."""
    steps: int = 0
    """How many steps of drafting were done."""
    _counted: list[torch.Tensor] = field(default_factory=list)
    """Drafts of this round that vLLM's counts of a response's tokens hold for now."""

    def masked(
        self, hidden_states: torch.Tensor, logits: torch.Tensor, last: torch.Tensor
    ) -> torch.Tensor:
        """The step's logits, as each row's request asks, before the temperature.

        logits: ``[rows, vocabulary]``, the junior's; what is allowed keeps its value where the
        request has no penalties, and -inf stands for what is not. last: int ``[rows]``, each row's
        draft of the step before; of no meaning at the first. Raises :class:`EngineError` when the
        speculator drafts for other rows than expected.
        """
        if len(logits) != len(self.slots) or self.steps >= self.length:
            raise EngineError(
                f"vLLM's speculator asked for {len(logits)} rows at step {self.steps} of drafting, "
                f"but {len(self.slots)} requests were to be drafted for in {self.length} "
                "steps. This vLLM version is not supported in mode=speculative: see "
                "docs/compatibility.md."
            )
        self.hidden[:, self.steps].index_copy_(0, self.slots, hidden_states.to(self.hidden.dtype))
        if self._penalised is not None and self.steps:
            self._count(last)
        processed = self._processed(logits)
        self.steps += 1
        if processed is not logits:
            if self._penalised is not None:
                logits = torch.where(
                    self._penalised[:, None], processed * self._temperature, logits.float()
                )
            logits = logits.masked_fill(processed == -torch.inf, -torch.inf)
        if self.is_done:
            self._uncount()
        return logits

    @property
    def is_done(self) -> bool:
        """Whether every step of the drafting passed through here."""
        return self.steps == self.length

    def check_done(self) -> None:
        """Raise :class:`EngineError` unless :attr:`is_done`."""
        if not self.is_done:
            raise EngineError(
                f"vLLM's speculator made {self.steps} of {self.length} steps of drafting "
                "through tandem's junior, so that drafts may not follow their requests' sampling "
                "parameters. This vLLM version is not supported in mode=speculative: see "
                "docs/compatibility.md."
            )

    def _processed(self, logits: torch.Tensor) -> torch.Tensor:
        """vLLM's processed logits, the same object where no row's request asks for anything."""
        zeros = torch.zeros_like(self.slots, dtype=torch.int32)
        processed: torch.Tensor = self.sampler.apply_sampling_params(
            logits,
            self.slots,
            self.slots,
            self.slots_host,
            self.positions + self.steps,
            zeros,
            zeros,
            np.zeros(len(self.slots), dtype=np.int32),
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
        tokens = tokens.long()
        self._add_to_counts(tokens, 1)
        self._counted.append(tokens)

    def _uncount(self) -> None:
        for tokens in self._counted:
            self._add_to_counts(tokens, -1)
        self._counted.clear()

    def _add_to_counts(self, tokens: torch.Tensor, by: int) -> None:
        counts = self.sampler.penalties_state.output_bin_counts
        change = torch.full((), by, dtype=counts.dtype, device=counts.device)
        counts.index_put_((self.slots, tokens), change, accumulate=True)
