"""How every response of an evaluation is sampled: the one place that says it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tandem_plugin.draws import check_seed
from tandem_plugin.errors import EvaluationError
from tandem_plugin.seeds import derive_seed

__all__ = ["HANDOFF_SAMPLES", "MAX_SAMPLES", "SOLO_SAMPLES", "Sampling"]

SOLO_SAMPLES = 32
"""Section 4.2: k in {1, 2, 4, 8, 16, 32}."""

HANDOFF_SAMPLES = 8
"""Section 4.3: k in {1, 2, 4, 8}."""


MAX_SAMPLES = 10**6
"""The most responses to one problem."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings; raises :class:`EvaluationError` for what cannot be sampled.

    The defaults are those of the paper's validation and response length (appendix A.3, table of
    hyperparameters).
    """

    samples: int
    """Responses to each problem."""
    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: int = 3000
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name, low, high in (
            ("samples", 1, MAX_SAMPLES),
            ("temperature", 0, 100),
            ("top_p", 1e-9, 1),
            ("max_tokens", 1, 10**7),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise EvaluationError(
                    f"{name}={value} is out of range: give a number from {low:g} to {high:g}."
                )

    def settings(self) -> dict[str, Any]:
        """All settings, for a result."""
        return asdict(self)

    def of_response(self) -> dict[str, Any]:
        """What decides a response, whatever the number of samples."""
        return {name: value for name, value in asdict(self).items() if name != "samples"}

    def seeds(self, benchmark: str, problem: int, sample: int) -> tuple[int, int]:
        """(sampling seed, tandem seed) of one response: the same for every model."""
        place = (benchmark, problem, sample)
        return (
            derive_seed(self.seed, "evaluation sampling", *place),
            derive_seed(self.seed, "evaluation draws", *place),
        )
