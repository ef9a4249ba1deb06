"""What the host knows of each slot, to choose a step's work without waiting for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from vllm.v1.worker.gpu.input_batch import InputBatch


class SlotFlags:
    """Four flags of each of ``size`` slots: bool ``[size]`` each."""

    def __init__(self, size: int) -> None:
        self.in_tandem: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        """Whether the slot holds a tandem request."""
        self.begins_with_senior: NDArray[np.bool_] = np.ones(size, dtype=np.bool_)
        """Whether its request's first token in this slot is the senior's."""
        self.has_masks: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        """Whether its request's sampling parameters mask logits."""
        self.has_next_hidden: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)
        """Whether the speculator kept the junior's hidden state at its newest token."""

    def enter(self, slot: int, *, in_tandem: bool, has_masks: bool) -> None:
        """Set the flags of a request that enters a slot, whose first author is not yet known."""
        self.in_tandem[slot], self.has_masks[slot] = in_tandem, has_masks
        self.begins_with_senior[slot] = True
        self.has_next_hidden[slot] = False

    def undrafted_rows(self, batch: InputBatch) -> NDArray[np.int64]:
        """The rows that write an undrafted token in this step, which may be the junior's.

        The host knows the author of a first token, and of no later one.
        """
        slots, prefilling = batch.idx_mapping_np, batch.is_prefilling_np
        drafted = batch.num_draft_tokens_per_req
        # vLLM pads some rows that end their prompt with placeholders, which are not drafts.
        without = np.ones_like(prefilling) if drafted is None else prefilling | (drafted == 0)
        computed = batch.num_computed_tokens_np + batch.num_scheduled_tokens
        ends = computed >= batch.prefill_len_np
        may_be_juniors = ~prefilling | ~self.begins_with_senior[slots]
        return np.flatnonzero(without & ends & self.in_tandem[slots] & may_be_juniors)
