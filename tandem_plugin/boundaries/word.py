"""Word boundaries: tokens that begin a new orthographic word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.errors import TokenizerError

__all__ = ["LEADING_SPACE_MARKERS", "word_boundaries"]

LEADING_SPACE_MARKERS = {"Ġ": "byte-level BPE", "▁": "SentencePiece"}
"""How a vocabulary writes the space before a word, and the family that writes it so."""


def word_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose surface form begins with the leading-space marker: bool ``[vocab]``.

    Source: paper, appendix A, "Word-level handoff details". Raises :class:`TokenizerError` for a
    vocabulary without such a marker.
    """
    tables = [
        np.fromiter((piece.startswith(m) for piece in vocabulary.pieces), bool, len(vocabulary))
        for m in LEADING_SPACE_MARKERS
    ]
    table = max(tables, key=lambda candidate: int(candidate.sum()))
    if not table.any():
        known = " or ".join(f"{m!r} ({family})" for m, family in LEADING_SPACE_MARKERS.items())
        raise TokenizerError(
            f"The tokenizer {vocabulary.source!r} has no token with a leading-space marker "
            f"({known}), so it has no word boundaries. Choose another resolver "
            "(boundaries=every) or another schedule (schedule=token)."
        )
    return table
