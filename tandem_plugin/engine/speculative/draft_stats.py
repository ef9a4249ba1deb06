"""Counters of the drafts' outcomes, on the device."""

from __future__ import annotations

from typing import Any

import torch

from tandem_plugin.engine.wire import DraftStats


class Rounds:
    """Counters of ``size`` slots and of the engine, updated without waiting for the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        counters = len(DraftStats.__dataclass_fields__)
        self._slots = torch.zeros((size, counters), dtype=torch.int64, device=device)
        self._engine = torch.zeros(counters, dtype=torch.int64, device=device)

    def begin(self, slot: int) -> None:
        """Reset the counters of a slot for a new request."""
        self._slots[slot].zero_()

    def add(
        self,
        slots: torch.Tensor,
        authors: torch.Tensor,
        held: torch.Tensor,
        accepted: torch.Tensor,
        written: torch.Tensor,
        counted: torch.Tensor,
    ) -> None:
        """Count a round.

        slots: int64 ``[rows]``. authors: bool ``[rows, k + 1]``, who writes each position. held,
        accepted, written: int ``[rows]``, each row's drafts, those accepted before the first
        rejection, and the tokens written. counted: bool ``[rows]``, the rows in tandem; rows
        without drafts are not counted.
        """
        steps = torch.arange(authors.shape[1] - 1, device=authors.device)
        kept = steps < accepted[:, None]
        senior = (kept & authors[:, :-1]).sum(1)
        junior = (kept & ~authors[:, :-1]).sum(1)
        rejected = accepted < held
        rows = torch.stack(
            [
                torch.ones_like(senior),
                held.long(),
                written.long(),
                senior + rejected,
                senior,
                junior,
            ],
            dim=1,
        )
        rows = rows * (counted & (held > 0))[:, None]
        self._slots.index_add_(0, slots, rows)
        self._engine += rows.sum(0)

    def of_slot(self, slot: int) -> DraftStats:
        """The counters of the request in a slot; waits for the device."""
        return DraftStats(*self._slots[slot].tolist())

    def of_engine(self) -> DraftStats:
        """The counters of all requests since startup; waits for the device."""
        return DraftStats(*self._engine.tolist())


def worker_draft_stats(worker: Any) -> dict[str, int]:
    """A worker's counters since startup; all workers have the same."""
    found: DraftStats = worker.model_runner.model_state.rounds.of_engine()
    return found.to_row()
