"""What was measured while an engine generated: sums, and the means that follow from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["MeasureSums"]


@dataclass(frozen=True, slots=True)
class MeasureSums:
    """Sums over the tokens of the measured steps, in tandem alone; nats.

    Of both models' own distributions, at temperature 1: before temperature, nucleus, penalties and
    masks, as ``tandem eval legibility`` has them.
    """

    senior_tokens: float = 0.0
    """Measured tokens that the senior wrote."""
    junior_cross_entropy: float = 0.0
    """Over these, the junior's -log p."""
    overlap: float = 0.0
    """Over these, the sum over the vocabulary of the smaller of both probabilities: alpha."""
    junior_tokens: float = 0.0
    """Measured tokens that the junior wrote."""
    senior_cross_entropy: float = 0.0
    """Over these, the senior's -log p."""

    def means(self) -> dict[str, float]:
        """``junior_cross_entropy``, ``overlap`` and ``senior_cross_entropy`` a token.

        One over no token is left out.
        """
        sums = {
            "junior_cross_entropy": (self.junior_cross_entropy, self.senior_tokens),
            "overlap": (self.overlap, self.senior_tokens),
            "senior_cross_entropy": (self.senior_cross_entropy, self.junior_tokens),
        }
        return {name: total / tokens for name, (total, tokens) in sums.items() if tokens}

    def since(self, earlier: MeasureSums) -> MeasureSums:
        """What came on top of an engine's earlier sums: all, where it was started anew."""
        more = {name: total - getattr(earlier, name) for name, total in self.to_row().items()}
        fewer = min(more["senior_tokens"], more["junior_tokens"]) < 0
        return self if fewer else MeasureSums(**more)

    def __add__(self, other: MeasureSums) -> MeasureSums:
        return MeasureSums(**{name: x + getattr(other, name) for name, x in self.to_row().items()})

    def to_row(self) -> dict[str, float]:
        """The sums, for JSON."""
        return asdict(self)
