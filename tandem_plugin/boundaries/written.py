"""Whether a tokenizer writes texts with the boundaries that were found in its list of tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.vocabulary import Vocabulary

__all__ = ["first_missed"]


def first_missed(
    vocabulary: Vocabulary, table: NDArray[np.bool_], texts: Iterable[str]
) -> str | None:
    """The first of these sample texts that is written without a boundary, and how; None if none.

    table: bool ``[vocab]``, the boundaries. None as well for a vocabulary without encodings.
    """
    for text in texts:
        ids = vocabulary.encodings.get(text)
        if ids is None:
            continue
        known = [i for i in ids if 0 <= i < len(table)]
        if not table[known].any():
            written = " ".join(repr(vocabulary.pieces[i]) for i in known)
            return f"{text!r} becomes {written or 'nothing'}"
    return None
