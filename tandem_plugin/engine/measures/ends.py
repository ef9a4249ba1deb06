"""Where responses end: vLLM drops what a step wrote behind, and nothing of that is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["NO_END", "End", "ends_of", "within"]


@dataclass(frozen=True, slots=True)
class End:
    """What ends a response."""

    limit: int
    """How many tokens it has at most."""
    stops: tuple[int, ...] = ()
    """Token ids behind which it has no more."""

    @classmethod
    def of(cls, params: Any, limit: int) -> End:
        """That of a request by its sampling parameters.

        A stop string is looked for where text is made of tokens, which no device knows.
        """
        eos = getattr(params, "eos_token_id", None)
        return cls(limit, (*(() if eos is None else (eos,)), *(params.stop_token_ids or ())))


NO_END = End(0)
"""Of a slot without a request in tandem."""


def ends_of(ends: Sequence[End]) -> NDArray[np.int64]:
    """Of each row its limit and its stop tokens, -1 behind them: int64 ``[rows, 1 + stops]``."""
    most = max((len(end.stops) for end in ends), default=0)
    found = np.full((len(ends), 1 + most), -1, dtype=np.int64)
    for row, end in enumerate(ends):
        found[row, 0] = end.limit
        found[row, 1 : 1 + len(end.stops)] = end.stops
    return found


def within(ends: torch.Tensor, positions: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Which rows' tokens lie in their responses: bool ``[rows]``.

    ends: as :func:`ends_of` has them. positions: int64 ``[rows]``, the tokens' places in their
    responses. before: int64 ``[rows, some]``, the tokens before each, the nearest first.
    """
    nearest = torch.arange(before.shape[1], device=before.device)
    is_stop = (before[:, :, None] == ends[:, None, 1:]).any(-1)
    ended = (is_stop & (nearest < positions[:, None])).any(1)
    return (positions < ends[:, 0]) & ~ended
