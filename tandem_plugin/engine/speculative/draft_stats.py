"""Counters of the drafts' outcomes, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tandem_plugin.engine.wire import DraftStats

if TYPE_CHECKING:
    from vllm.v1.worker.gpu_worker import Worker


@dataclass(frozen=True, slots=True, eq=False)
class RoundOutcome:
    """What became of the drafts of a round's rows."""

    slots: torch.Tensor
    """int64 ``[rows]``"""
    authors: torch.Tensor
    """bool ``[rows, k + 1]``, who writes each position, true = senior."""
    num_drafts: torch.Tensor
    """int64 ``[rows]``, the drafts that were verified; rows without any are not counted."""
    num_accepted: torch.Tensor
    """int ``[rows]``, those before the first rejection."""
    num_written: torch.Tensor
    """int ``[rows]``, the tokens written: the accepted drafts, and mostly one more."""


class DraftCounters:
    """Counters of ``size`` slots and of the engine, updated without waiting for the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        counters = len(DraftStats.__dataclass_fields__)
        self._slots = torch.zeros((size, counters), dtype=torch.int64, device=device)
        self._engine = torch.zeros(counters, dtype=torch.int64, device=device)

    def begin(self, slot: int) -> None:
        """Reset the counters of a slot for a new request."""
        self._slots[slot].zero_()

    def add(self, outcome: RoundOutcome, in_tandem: torch.Tensor) -> None:
        """Count a round. in_tandem: bool ``[rows]``; other rows are not counted."""
        authors, num_drafts = outcome.authors, outcome.num_drafts
        steps = torch.arange(authors.shape[1] - 1, device=authors.device)
        is_accepted = steps < outcome.num_accepted[:, None]
        senior = (is_accepted & authors[:, :-1]).sum(1)
        junior = (is_accepted & ~authors[:, :-1]).sum(1)
        rejected = outcome.num_accepted < num_drafts
        rows = torch.stack(
            [
                torch.ones_like(senior),
                num_drafts.long(),
                outcome.num_written.long(),
                senior + rejected,
                senior,
                junior,
            ],
            dim=1,
        )
        rows = rows * (in_tandem & (num_drafts > 0))[:, None]
        self._slots.index_add_(0, outcome.slots, rows)
        self._engine += rows.sum(0)

    def of_slot(self, slot: int) -> DraftStats:
        """The counters of the request in a slot; waits for the device."""
        return DraftStats(*self._slots[slot].tolist())

    def of_engine(self) -> DraftStats:
        """The counters of all requests since startup; waits for the device."""
        return DraftStats(*self._engine.tolist())


def worker_draft_stats(worker: Worker) -> dict[str, int]:
    """A worker's counters since startup; all workers have the same."""
    stats: DraftStats = worker.model_runner.model_state.draft_counters.of_engine()
    return stats.to_row()
