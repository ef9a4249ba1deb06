"""What became of drafts: counters, and the rates that follow from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

__all__ = ["DraftStats", "Rounds", "worker_draft_stats"]


@dataclass(frozen=True, slots=True)
class DraftStats:
    """What became of the drafts of a request or of an engine, in tandem alone."""

    rounds: int = 0
    """Forward passes of the senior over a request's drafts."""
    drafts: int = 0
    """Tokens that the junior drafted for these rounds."""
    tokens: int = 0
    """Tokens that these rounds wrote."""
    senior_drafts: int = 0
    """Drafts that the senior checked as its own tokens, up to each round's first rejection."""
    senior_accepted: int = 0
    """Of them, those that it wrote."""
    junior_drafts: int = 0
    """Drafts that stood because the junior is their author."""

    @property
    def acceptance(self) -> float:
        """The share of the senior's drafts that it accepted; not a number without drafts."""
        return self.senior_accepted / self.senior_drafts if self.senior_drafts else float("nan")

    @property
    def tokens_per_round(self) -> float:
        """Tokens a forward pass of the senior; not a number without rounds."""
        return self.tokens / self.rounds if self.rounds else float("nan")

    @property
    def forwards_per_token(self) -> float:
        """Forward passes of both models a token; not a number without tokens.

        Prompts, and rounds that write a token without drafts, are left out.
        """
        return (self.rounds + self.drafts) / self.tokens if self.tokens else float("nan")

    def since(self, earlier: DraftStats) -> DraftStats:
        """What came on top of an engine's earlier counters: all, where it was started anew."""
        more = {name: count - getattr(earlier, name) for name, count in self.to_row().items()}
        return self if min(more.values()) < 0 else DraftStats(**more)

    def __add__(self, other: DraftStats) -> DraftStats:
        return DraftStats(**{name: n + getattr(other, name) for name, n in self.to_row().items()})

    def to_row(self) -> dict[str, int]:
        """The counters, for JSON."""
        return asdict(self)


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
