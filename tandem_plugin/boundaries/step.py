"""Step boundaries: tokens that contain a blank line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.errors import TokenizerError

__all__ = ["step_boundaries"]

_BLANK_LINES = ("\n\n", "ĊĊ")
"""A blank line as text, and as byte-level BPE writes it."""


def step_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose text contains two newlines in a row: bool ``[vocab]``.

    Source: paper, section 4.3. Raises :class:`TokenizerError` where no token does.
    """
    found = (any(line in piece for line in _BLANK_LINES) for piece in vocabulary.pieces)
    table = np.fromiter(found, bool, len(vocabulary))
    if not table.any():
        raise TokenizerError(
            f"The tokenizer {vocabulary.source!r} has no token that contains a blank line, so it "
            "has no step boundaries. Choose another resolver (boundaries=...)."
        )
    return table
