"""Word boundaries: tokens that begin a new orthographic word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.vocabulary import Vocabulary
from tandem_plugin.boundaries.vocabulary_families import LEADING_SPACE_MARKERS
from tandem_plugin.errors import TokenizerError

__all__ = ["word_boundaries"]


def word_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose surface form begins with the leading-space marker: bool ``[vocab]``.

    These are the tokens whose text begins with a space, in a vocabulary that writes the space
    before a word into the token. A byte piece that is a space (``<0x20>``) is one of them. Source:
    paper, appendix A, "Word-level handoff details". Raises :class:`TokenizerError` for a vocabulary
    without such a marker, or with the marker behind the word.
    """
    table = np.zeros(len(vocabulary), dtype=np.bool_)
    if vocabulary.family in LEADING_SPACE_MARKERS:
        found = (text.startswith(b" ") for text in vocabulary.texts())
        table = np.fromiter(found, bool, len(vocabulary))
    if not table.any():
        known = " or ".join(f"{m!r} ({family})" for family, m in LEADING_SPACE_MARKERS.items())
        raise TokenizerError(
            "TP222", source=vocabulary.source, known=known, family=vocabulary.family
        )
    _check_marker_leads(vocabulary)
    return table


def _check_marker_leads(vocabulary: Vocabulary) -> None:
    """Refuse SentencePiece's ``treat_whitespace_as_suffix``, where a word's last token ends in it.

    A few tokens that end in the marker are in every vocabulary.
    """
    marker = LEADING_SPACE_MARKERS[vocabulary.family]
    words = [piece for piece in vocabulary.pieces if piece.strip(marker)]
    leading = sum(piece.startswith(marker) for piece in words)
    trailing = [piece for piece in words if piece.endswith(marker)]
    if len(trailing) > leading:
        raise TokenizerError(
            "TP223",
            source=vocabulary.source,
            example=trailing[0],
            others=len(trailing) - 1,
            leading=leading,
        )
