"""Every token is a boundary."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.vocabulary import Vocabulary

__all__ = ["every_boundary"]


def every_boundary(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for every id: bool ``[vocab]``."""
    return np.ones(len(vocabulary), dtype=np.bool_)
