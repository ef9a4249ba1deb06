"""Rollout log-probabilities, which are zero outside the tokens that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError

__all__ = ["check_log_probs", "masked_log_probs"]


def masked_log_probs(log_probs: Sequence[float] | None, senior: NDArray[np.bool_]) -> Any:
    """What an agent returned of each token, zero where ``senior`` is false; None where nothing.

    Raises :class:`AuthorshipError` for another number of them.
    """
    if log_probs is None:
        return None
    if len(log_probs) != len(senior):
        raise AuthorshipError("TP431", log_probs=len(log_probs), tokens=len(senior))
    return [value if mine else 0.0 for value, mine in zip(log_probs, senior, strict=True)]


def check_log_probs(name: str, log_probs: NDArray[np.floating], mask: NDArray[np.bool_]) -> None:
    """Raise :class:`AuthorshipError` unless they are zero outside the mask, in its length.

    name: of the response.
    """
    if len(log_probs) != len(mask):
        raise AuthorshipError("TP432", row=name, log_probs=len(log_probs), tokens=len(mask))
    if log_probs[~mask].any():
        raise AuthorshipError("TP433", row=name)
