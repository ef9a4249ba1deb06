"""Step boundaries: tokens that contain a blank line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.errors import TokenizerError

__all__ = ["step_boundaries"]


def step_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose text contains two newlines in a row: bool ``[vocab]``.

    Source: paper, section 4.3. Raises :class:`TokenizerError` where no token does.
    """
    found = (b"\n\n" in text for text in vocabulary.texts())
    table = np.fromiter(found, bool, len(vocabulary))
    if not table.any():
        raise TokenizerError(
            f"The tokenizer {vocabulary.source!r} has no token that contains a blank line, so it "
            "has no step boundaries. Choose another resolver (such as boundaries=newline)."
        )
    return table
