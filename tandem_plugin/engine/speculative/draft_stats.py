"""What became of drafts: counters, and the rates that follow from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["DraftStats"]


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
