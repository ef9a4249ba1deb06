"""Sample texts: how a tokenizer writes them is a fact that its list of tokens does not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

from tandem_plugin.errors import TandemError, TokenizerError

__all__ = [
    "BLANK_LINES",
    "NEWLINE",
    "encoder_of",
    "foreign_code",
    "sample_encodings",
]

NEWLINE = "a\nb"
"""Two lines."""

BLANK_LINES = tuple(
    "\n\n".join(lines)
    for lines in product(("a", "1", "a.", "a:", "a)", "a$$"), ("B", "1", "- b", "  b"))
)
"""Two lines with a blank line between them: the ends and beginnings that mathematics is full of."""


def sample_encodings(
    encode: Callable[[str], Sequence[int]] | None,
) -> Mapping[str, tuple[int, ...]]:
    """The token ids of each sample text; empty where there is no tokenizer that encodes text.

    encode: the token ids of a text, special tokens left out.
    """
    if encode is None:
        return {}
    try:
        with foreign_code("The sample texts cannot be encoded"):
            found = {text: tuple(map(int, encode(text))) for text in (NEWLINE, *BLANK_LINES)}
    except TokenizerError:  # it lists its tokens, and resolvers that ask for no more can be used
        return {}
    return found


def encoder_of(tokenizer: Any) -> Callable[[str], Sequence[int]] | None:
    """How a tokenizer encodes a text without special tokens; None where it does not.

    tokenizer: a Hugging Face tokenizer (slow or fast) or a ``tokenizers.Tokenizer``.
    """
    # A fast tokenizer's own method changes the state of the core that other threads may be using.
    core = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not callable(getattr(core, "encode", None)):
        return None

    def encode(text: str) -> Sequence[int]:
        encoding = core.encode(text, add_special_tokens=False)
        ids: Sequence[int] = getattr(encoding, "ids", encoding)
        return ids

    return encode


@contextmanager
def foreign_code(said: str) -> Iterator[None]:
    """Make a :class:`TokenizerError`, beginning with ``said``, of whatever a library raises.

    A panic in the library tokenizers is a BaseException, and no Exception.
    """
    try:
        yield
    except (TandemError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TokenizerError("TP204", said=said, error=error) from error
