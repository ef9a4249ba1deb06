"""The built-in boundary resolvers: they map a tokenizer's vocabulary to one bool per token id."""

from __future__ import annotations

import unicodedata

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.boundaries.vocabulary import Vocabulary, first_missed
from tandem_plugin.boundaries.vocabulary_families import BLANK_LINES, LEADING_SPACE_MARKERS, NEWLINE
from tandem_plugin.errors import TokenizerError


def every_boundary(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for every id: bool ``[vocab]``."""
    return np.ones(len(vocabulary), dtype=np.bool_)


def newline_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose text contains a newline: bool ``[vocab]``.

    Raises :class:`TokenizerError` if no token does, or if the tokenizer drops newlines although it
    has a token for them.
    """
    has_newline = (b"\n" in text for text in vocabulary.texts())
    table = np.fromiter(has_newline, bool, len(vocabulary))
    if not table.any():
        raise TokenizerError("tokenizer-without-newline", source=vocabulary.source)
    missed = first_missed(vocabulary, table, (NEWLINE,))
    if missed is not None:
        raise TokenizerError(
            "newline-token-never-produced", source=vocabulary.source, missed=missed
        )
    return table


LINE_BREAKS = frozenset("\n\r\x85\u2028\u2029")
"""Characters that end a line, and with it a sentence (ParaSep of Unicode's Annex 29)."""

_TERMINALS = """
    0021 002E 003F 0589 061D-061F 06D4 0700-0702 07F9 0837 0839 083D-083E 0964-0965 104A-104B
    1362 1367-1368 166E 1735-1736 17D4-17D5 1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B
    1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F 2024 203C-203D 2047-2049 2CF9-2CFB 2E2E 2E3C
    2E53-2E54 2E60-2E61 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9
    AA5D-AA5F AAF0-AAF1 ABEB FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57
    10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF
    11238-11239 1123B-1123C 112A9 113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642
    1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44
    16A6E-16A6F 16AF5 16B37-16B38 16B44 16D6E-16D6F 16E98 1BC9F 1DA88
"""
"""Code points and ranges with Unicode's property Sentence_Terminal (Unicode 17.0)."""


def _characters(ranges: str) -> frozenset[str]:
    characters: set[str] = set()
    for part in ranges.split():
        first, _, last = part.partition("-")
        characters.update(map(chr, range(int(first, 16), int(last or first, 16) + 1)))
    return frozenset(characters)


SENTENCE_TERMINALS = _characters(_TERMINALS) | {"\u2026"}
"""Characters that end a sentence in any script, and the ellipsis."""

_CLOSING = ("Pe", "Pi", "Pf")
"""Unicode's categories of closing brackets and of quotation marks; both can close."""


def ends_sentence(text: str) -> bool:
    """Whether a token of this text ends a sentence, judged by the token alone."""
    if not LINE_BREAKS.isdisjoint(text):
        return True
    end = len(text)
    while end and _may_follow(text[end - 1]):
        end -= 1
    return end > 0 and text[end - 1] in SENTENCE_TERMINALS


def sentence_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids that end a sentence: bool ``[vocab]``.

    A token ends a sentence if its text contains a line break, or if it ends in a sentence terminal
    (``.``, ``!``, ``?``, ``...`` and those of other scripts) once trailing whitespace, quotation
    marks and closing brackets are removed. A table over the vocabulary cannot see the text around a
    token: the "3." of a list and the "Dr." of a name count, the "3" of "3.14" before its point does
    not. Bytes that do not form a whole character never end a sentence. Source: the rules of Unicode
    Standard Annex 29, section 5, applied to one token. Raises :class:`TokenizerError` if no token
    ends a sentence.
    """
    ends = (ends_sentence(text.decode("utf-8", "replace")) for text in vocabulary.texts())
    table = np.fromiter(ends, bool, len(vocabulary))
    if not table.any():
        raise TokenizerError("tokenizer-without-sentence-ends", source=vocabulary.source)
    return table


def _may_follow(character: str) -> bool:
    return character.isspace() or character in "\"'" or unicodedata.category(character) in _CLOSING


def step_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose text contains two newlines in a row: bool ``[vocab]``.

    Source: paper, section 4.3. Raises :class:`TokenizerError` if no token does, or if the tokenizer
    writes blank lines as two tokens of one newline each, like GPT-2's: the author would then almost
    never change. For a bare list of tokens this can be decided only if a blank line is also written
    together with the text before it, as in ``.\\n\\n``.
    """
    texts = vocabulary.texts()
    table = np.fromiter((b"\n\n" in text for text in texts), bool, len(vocabulary))
    if not table.any():
        raise TokenizerError("tokenizer-without-blank-lines", source=vocabulary.source)
    if vocabulary.encodings:
        missed = first_missed(vocabulary, table, BLANK_LINES)
        if missed is not None:
            raise TokenizerError("blank-line-many-tokens", source=vocabulary.source, missed=missed)
    elif not any(texts[i].strip() for i in np.flatnonzero(table)):
        raise TokenizerError("blank-line-tokens-unknown", source=vocabulary.source)
    return table


def word_boundaries(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """True for the ids whose surface form begins with the leading-space marker: bool ``[vocab]``.

    These are the tokens whose text begins with a space, in a vocabulary that writes the space
    before a word into the token. A byte piece that is a space (``<0x20>``) is one of them. Source:
    paper, appendix A, "Word-level handoff details". Raises :class:`TokenizerError` for a vocabulary
    without such a marker.
    """
    table = np.zeros(len(vocabulary), dtype=np.bool_)
    if vocabulary.family in LEADING_SPACE_MARKERS:
        begins_with_space = (text.startswith(b" ") for text in vocabulary.texts())
        table = np.fromiter(begins_with_space, bool, len(vocabulary))
    if not table.any():
        markers = " or ".join(f"{m!r} ({family})" for family, m in LEADING_SPACE_MARKERS.items())
        raise TokenizerError(
            "tokenizer-without-word-marker",
            source=vocabulary.source,
            known=markers,
            family=vocabulary.family,
        )
    return table
