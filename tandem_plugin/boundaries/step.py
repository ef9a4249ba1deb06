"""Step boundaries: tokens that contain a blank line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.probe_texts import BLANK_LINES
from tandem_plugin.boundaries.vocabulary import Vocabulary, first_missed
from tandem_plugin.errors import TokenizerError

__all__ = ["step_boundaries"]


def step_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose text contains two newlines in a row: bool ``[vocab]``.

    Source: paper, section 4.3. Raises :class:`TokenizerError` where no token does, and where the
    tokenizer writes blank lines as two tokens of one newline each, as GPT-2's does: the author
    would then hardly ever change. A mere list of tokens tells so much only where a blank line is
    also written together with the text before it, as in ``.\\n\\n``.
    """
    texts = vocabulary.texts()
    table = np.fromiter((b"\n\n" in text for text in texts), bool, len(vocabulary))
    if not table.any():
        raise TokenizerError("TP206", source=vocabulary.source)
    if vocabulary.encodings:
        missed = first_missed(vocabulary, table, BLANK_LINES)
        if missed is not None:
            raise TokenizerError("TP207", source=vocabulary.source, missed=missed)
    elif not any(texts[i].strip() for i in np.flatnonzero(table)):
        raise TokenizerError("TP208", source=vocabulary.source)
    return table
