"""The rows of a batch as the trainer process sees them: what was generated and who wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One response of a batch. Arrays have the length of the response, unless something is wrong.

    Fields that verl delivered without are None: it is for the checks to say so.
    """

    name: str
    """What error messages call it."""
    group: str
    """The prompt it answers: responses to one prompt are compared with each other."""
    response_ids: NDArray[np.int64]
    response_mask: NDArray[np.bool_]
    """The tokens that are trained on."""
    authorship: NDArray[np.bool_] | None
    seed: int | None
    fingerprint: str | None
    segments: list[list[int]] = field(default_factory=list)
    trained: NDArray[np.bool_] | None = None
    """The tokens that the agent loop would train: ``response_mask`` is the senior's among them."""
    loss_mask: NDArray[np.bool_] | None = None
    """The mask that the loss takes its denominator from, where verl keeps one of its own."""
    junior_mask: NDArray[np.bool_] | None = None
    """The junior's tokens that the senior is to imitate, in a run with ``lambda_jun`` above 0."""
    error: str | None = None
    settings: dict[str, Any] | None = None
    """The schedule that decided the authorship, its parameters and its resolver."""
    graded: Mapping[str, float] = field(default_factory=dict)
    """The outcome of grading, where tandem's own reward gave it: see :data:`GRADED`."""

    def dump(self) -> dict[str, Any]:
        """The row's columns in a rollout dump, from which ``tandem replay`` derives authorship."""
        # Without a segment a reader takes the whole response for one of the row's seed.
        nothing = [] if self.seed is None else [[self.seed, 0, 0]]
        columns: dict[str, Any] = {
            "response_ids": self.response_ids.tolist(),
            "authorship": None if self.authorship is None else self.authorship.astype(int).tolist(),
            "tandem_seed": self.seed,
            "tandem_fingerprint": self.fingerprint,
            "tandem_schedule": self.settings,
            "tandem_segments": self.segments or nothing,
        }
        return columns
