"""Whether a tokenizer gives back the text that it was given, and lists what it decodes."""

from __future__ import annotations

import functools
import logging
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tandem_plugin.boundaries.vocabulary_families import (
    LAYOUT,
    LEADING_SPACE_MARKERS,
    MEANINGS,
    PLAIN,
    Family,
    foreign_code,
)
from tandem_plugin.errors import TokenizerError

logger = logging.getLogger(__name__)

Decode = Callable[[Sequence[int]], str]


class Listed(Protocol):
    """What is compared with a tokenizer: a vocabulary as it was read from it."""

    @property
    def source(self) -> str:
        """Where it was read from."""

    @property
    def special(self) -> frozenset[int]:
        """The ids of special tokens."""

    @property
    def encodings(self) -> Mapping[str, tuple[int, ...]]:
        """The token ids of each sample text."""

    @property
    def family(self) -> Family:
        """How pieces are written."""

    def texts(self) -> tuple[bytes, ...]:
        """The bytes of every token id."""


def check_round_trip(tokenizer: Any, vocabulary: Listed) -> None:
    """Raise :class:`TokenizerError` unless a plain sentence is decoded as it was encoded.

    Its tokens, as ``vocabulary`` reads them, must give the same text: else boundaries would be
    those of other tokens. A tokenizer that changes other texts is reported once, with what that
    means. A toy vocabulary without all letters is only compared with its own decoder, and one that
    cannot encode or decode is not checked.
    """
    if not vocabulary.encodings or not callable(getattr(tokenizer, "decode", None)):
        return

    def decode(ids: Sequence[int]) -> str:
        with foreign_code(f"The tokenizer {vocabulary.source!r} does not decode its own encodings"):
            return str(tokenizer.decode(list(ids), skip_special_tokens=True))

    texts = vocabulary.texts()
    decoded = decode(vocabulary.encodings[PLAIN])
    _check_listing(vocabulary, texts, decoded)
    if not _has_all_letters(texts):
        return
    if _plain_form(decoded) != _plain_form(PLAIN):
        kind = type(tokenizer).__name__
        raise TokenizerError(
            "tokenizer-loses-text", source=vocabulary.source, kind=kind, text=PLAIN, decoded=decoded
        )
    _say_what_changes(vocabulary, decode)


def _check_listing(vocabulary: Listed, texts: Sequence[bytes], decoded: str) -> None:
    """Raise :class:`TokenizerError` if the sentence's tokens are listed otherwise than decoded.

    decoded: without special tokens.
    """
    ids = [i for i in vocabulary.encodings[PLAIN] if i not in vocabulary.special]
    pieces = [texts[i] if i < len(texts) else b"?" for i in ids]
    listed = b"".join(pieces).decode("utf-8", "replace")
    # Some families write no blanks into their tokens.
    blank = " " if vocabulary.family in LEADING_SPACE_MARKERS else ""
    if blank.join(listed.split()) != blank.join(decoded.split()):
        raise TokenizerError(
            "tokenizer-lists-differ", source=vocabulary.source, decoded=decoded, listed=listed
        )


def _has_all_letters(texts: Sequence[bytes]) -> bool:
    """Whether every letter and digit of the sentence is a token."""
    letters = {letter.encode() for letter in PLAIN.casefold() if letter.isalnum()}
    return letters <= {text.strip().lower() for text in texts if len(text) < 3}


def _plain_form(text: str) -> str:
    """A text without what a normalizer changes: case, forms of characters, blanks at the ends."""
    return unicodedata.normalize("NFKC", text).casefold().strip()


def _say_what_changes(vocabulary: Listed, decode: Decode) -> None:
    """Log the sample texts that come back otherwise, and whether that matters."""
    changes = {
        text: decoded
        for text in (PLAIN, *MEANINGS, *LAYOUT)
        if (decoded := decode(vocabulary.encodings[text])) != text
    }
    meanings = [
        f"{text!r} as {decoded!r}"
        for text, decoded in changes.items()
        if text not in LAYOUT and text.strip() != decoded.strip()
    ]
    layout = [f"{text!r} as {changes[text]!r}" for text in LAYOUT if text in changes]
    _say_once(vocabulary.source, "; ".join(meanings), "; ".join(layout))


@functools.cache
def _say_once(source: str, meanings: str, layout: str) -> None:
    harmless = "Authorship goes by token ids and is not affected"
    if meanings:
        logger.warning(
            "The tokenizer %r changes text: it reads %s. Both models read prompts that way: check "
            "that yours keep their meaning. %s.",
            source,
            meanings,
            harmless,
        )
    elif layout:
        logger.info("The tokenizer %r reads %s. %s: harmless.", source, layout, harmless)
