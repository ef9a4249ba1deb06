"""Whether a tokenizer is the one that rollouts were written with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import TandemError
from tandem_plugin.lab.rollouts.audit import RuleBook
from tandem_plugin.lab.rollouts.rollout import Rollout

__all__ = ["Decoding"]

_TEXTS = ("response", "output")
"""Where ``tandem rollout`` and verl's dump record what a response says."""

_SPECIAL = re.compile(rb"<[^<>\s]+>|\[[A-Z]+\]")
"""How special tokens are written, for vocabularies that do not say which are."""

_DROPPED = re.compile("[\\s\ufffd]+")
"""What decoders treat in ways of their own: white space, and bytes that are no character."""


class Decoding:
    """Compares what rows record with what their token ids give in one vocabulary.

    A row's own text is what decides. Decoders leave out special tokens, clean up white space and
    may cut at a stop string, so the token ids must give the text but for these. A row without a
    text is known by its fingerprint, where it carries the settings that this follows from; and
    where it carries neither, by token ids that the vocabulary lacks.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._texts = vocabulary.texts()
        self._known = dict(enumerate(self._texts))
        self._special = vocabulary.special or frozenset(
            i for i, text in enumerate(self._texts) if _SPECIAL.fullmatch(text)
        )
        self._rules = RuleBook(vocabulary, {})

    def mismatch(self, row: Rollout) -> str | None:
        """A sentence that says how the row is not of this vocabulary; None where it is."""
        recorded = next((v for n in _TEXTS if isinstance(v := row.fields.get(n), str)), None)
        if recorded is not None:
            return self._text_mismatch(row.response_ids, recorded)
        if row.fingerprint is not None and row.settings:
            expected = self._fingerprint(row.settings)
            if expected not in (None, row.fingerprint):
                return (
                    f"The row's fingerprint is {row.fingerprint[:60]!r}; its rules have "
                    f"{expected!r} with this tokenizer."
                )
        elif max(row.response_ids, default=0) >= len(self._texts):
            return (
                f"The token id {max(row.response_ids)} is beyond this tokenizer's "
                f"{len(self._texts)} ids."
            )
        return None

    def _text_mismatch(self, ids: list[int], recorded: str) -> str | None:
        wanted = _DROPPED.sub("", recorded)
        if self._text(ids).startswith(wanted):
            return None
        plain = self._text(i for i in ids if i not in self._special)
        if plain.startswith(wanted):
            return None
        return f"The row records {_begin(wanted)}, and its token ids give {_begin(plain)}."

    def _text(self, ids: Iterable[int]) -> str:
        """What the ids say without what decoders differ in; ids of padding say nothing."""
        known = b"".join(map(self._known.get, ids, repeat(b"")))
        return _DROPPED.sub("", known.decode("utf-8", "replace"))

    def _fingerprint(self, settings: Mapping[str, Any]) -> str | None:
        """What a row with these settings has in this vocabulary; None where nothing can tell."""
        try:
            return self._rules.rule(settings).fingerprint
        except TandemError:
            return None


def _begin(text: str) -> str:
    return repr(text if len(text) <= 30 else f"{text[:27]}...")
