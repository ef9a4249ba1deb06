"""Words in any script: the resolver ``word-any``, for languages written without spaces."""

from __future__ import annotations

import numpy as np
import regex
from numpy.typing import NDArray

from tandem_plugin.boundaries.resolvers import word_boundaries
from tandem_plugin.boundaries.vocabulary import Vocabulary

_WORD_START = regex.compile(
    r"(?V1)(?w)\b[[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{lb=SA}]"
    r"--[\p{M}\p{GCB=Extend}\p{GCB=SpacingMark}]]"
)
"""Where Unicode's Annex 29 begins a word, at a letter of a script without spaces between words:
Chinese, Japanese, Yi, and those that Unicode's line breaking leaves to dictionaries (lb=SA: Thai,
Lao, Khmer, Myanmar and others). A combining mark never begins one, nor does a letter that Unicode
joins to the character before it, such as Thai's sara am."""


def word_any_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids in which a word begins, in any script: bool ``[vocab]``.

    Those of ``word``, and tokens in which Unicode's word segmentation begins a word of a script
    without spaces. A token that is not made of whole characters is no boundary, so no author draws
    in the middle of a character. A table over the vocabulary sees neither the text around a token
    nor a dictionary: every token of such a script that begins with a letter counts, so a word of
    several tokens can be split, and so can a run of Katakana, which Unicode keeps together.
    Characters that a tokenizer writes as several tokens of bytes have no boundary of their own.
    Source: Unicode Standard Annex 29, section 4, applied to one token. Raises like
    :func:`~tandem_plugin.boundaries.resolvers.word_boundaries`.
    """
    spaced = word_boundaries(vocabulary)
    table = np.zeros(len(vocabulary), dtype=np.bool_)
    for token_id, content in enumerate(vocabulary.texts()):
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            continue
        table[token_id] = spaced[token_id] or _WORD_START.search(text) is not None
    return table
