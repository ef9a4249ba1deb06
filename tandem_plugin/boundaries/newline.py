"""Newline boundaries: tokens that contain a newline."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.probe_texts import NEWLINE
from tandem_plugin.boundaries.vocabulary import Vocabulary, first_missed
from tandem_plugin.errors import TokenizerError

__all__ = ["newline_boundaries"]


def newline_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose text contains a newline: bool ``[vocab]``.

    Raises :class:`TokenizerError` where no token does, and where the tokenizer drops newlines
    though it has a token for them.
    """
    found = (b"\n" in text for text in vocabulary.texts())
    table = np.fromiter(found, bool, len(vocabulary))
    if not table.any():
        raise TokenizerError("TP202", source=vocabulary.source)
    missed = first_missed(vocabulary, table, (NEWLINE,))
    if missed is not None:
        raise TokenizerError("TP203", source=vocabulary.source, missed=missed)
    return table
