"""The paper's schedule: a Bernoulli redraw at word boundaries, and at a cap on the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.schedules.bernoulli import BernoulliSchedule
from tandem_plugin.schedules.parameters import check_count
from tandem_plugin.schedules.schedule import Tensor, tokens_since

__all__ = ["WordSchedule"]


@dataclass(frozen=True, slots=True)
class WordSchedule(BernoulliSchedule):
    """Redraw the author after every word boundary, and after more than ``cap`` other tokens.

    Source: Algorithm 1 of the paper. After token t the author is redrawn if the token is a
    boundary or the run has reached the cap; the run then starts at 0, else it grows by 1.
    """

    name: ClassVar[str] = "word"
    boundaries: ClassVar[str] = "word"

    cap: int = 32
    """K: the run of non-boundary tokens after which the author is redrawn all the same."""

    def __post_init__(self) -> None:
        BernoulliSchedule.__post_init__(self)
        check_count("cap", self.cap)

    def advance(
        self, author: Tensor, run: Tensor, is_boundary: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._redrawn(is_boundary | (run >= self.cap), author, run, u)

    def walk(
        self, is_boundary: NDArray[np.bool_], u: NDArray[np.float64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        runs = tokens_since(is_boundary)
        if runs.size and runs.max() > self.cap:  # rare in a text, and a division costs the most
            runs %= self.cap + 1
        return self._drawn(runs, u)
