"""The bytes that tokens stand for: one character may be written by several tokens."""

from __future__ import annotations

from collections.abc import Iterable

from tandem_plugin.boundaries import Vocabulary

__all__ = ["TokenBytes"]


class _Known(dict[int, bytes]):
    """Bytes by token id; an id that the vocabulary lacks is shown as ``<id>``."""

    def __missing__(self, token_id: int) -> bytes:
        return f"<{token_id}>".encode()


class TokenBytes:
    """Token ids to bytes, by a vocabulary; see :meth:`Vocabulary.texts`."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._known = _Known((i, text) for i, text in enumerate(vocabulary.texts()) if text)

    def __call__(self, token_ids: Iterable[int]) -> bytes:
        """The bytes of these tokens, one after the other."""
        return b"".join(map(self._known.__getitem__, token_ids))
