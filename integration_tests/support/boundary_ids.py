"""The boundaries of the tests' byte-level tokenizer, from its pieces alone."""

from __future__ import annotations

from typing import Any


def word_boundaries(tokenizer: Any) -> set[int]:
    """The token ids that begin with a space."""
    return {i for piece, i in tokenizer.get_vocab().items() if piece.startswith("Ġ")}


def step_boundaries(tokenizer: Any) -> set[int]:
    """The token ids that hold a blank line."""
    return {i for piece, i in tokenizer.get_vocab().items() if "ĊĊ" in piece}
