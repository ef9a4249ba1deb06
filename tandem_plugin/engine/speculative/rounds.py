"""How drafting goes: counters of rounds, tokens and acceptance, on the device."""

from __future__ import annotations

from typing import Any

import torch

from tandem_plugin.engine.speculative.draft_stats import DraftStats

__all__ = ["Rounds", "worker_draft_stats"]


class Rounds:
    """Counters of each of ``size`` slots and of the engine, written without waiting."""

    def __init__(self, size: int, device: torch.device) -> None:
        counters = len(DraftStats.__dataclass_fields__)
        self._slots = torch.zeros((size, counters), dtype=torch.int64, device=device)
        self._engine = torch.zeros(counters, dtype=torch.int64, device=device)

    def begin(self, slot: int) -> None:
        """Let a request enter a slot."""
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
        """Take in a round.

        slots: int64 ``[rows]``. authors: bool ``[rows, k + 1]``, who writes each position. held,
        accepted, written: int ``[rows]``, the drafts of each row, how many of them were accepted
        before the first that was not, and the tokens that came of it. counted: bool ``[rows]``, the
        rows in tandem; those without drafts count nothing.
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
        """The counters of all requests since the engine's start; waits for the device."""
        return DraftStats(*self._engine.tolist())


def worker_draft_stats(worker: Any) -> dict[str, int]:
    """A worker's counters since the engine's start; those of all workers are the same."""
    found: DraftStats = worker.model_runner.model_state.rounds.of_engine()
    return found.to_row()
