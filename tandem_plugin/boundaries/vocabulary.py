"""A tokenizer's vocabulary, as boundary resolvers read it: the surface form of every token id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.boundaries.families import (
    Family,
    byte_level_piece,
    declared_family,
    guess_family,
    texts_of,
)
from tandem_plugin.boundaries.formats import (
    is_rank_file,
    read_rank_file,
    read_sentencepiece_file,
    tiktoken_vocabulary,
)
from tandem_plugin.errors import TokenizerError

__all__ = ["MAX_TOKEN_ID", "Vocabulary"]

MAX_TOKEN_ID = 2**24 - 1
"""The largest token id that a vocabulary may hold, far above any tokenizer's."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The raw piece of every token id, space marker included (``Ġthe``, ``▁the``).

    pieces: one entry a token id; the empty string where a vocabulary has no token for an id.
    """

    pieces: tuple[str, ...]
    source: str
    """Where it was read from, for error messages."""
    declared: Family | None = None
    """The family that the tokenizer itself says it is of, where it does."""
    special: frozenset[int] = frozenset()
    """The ids of special tokens, where they are known: their pieces are plain text."""

    @property
    def family(self) -> Family:
        """How the pieces are written; guessed from them where the tokenizer does not say."""
        return self.declared or guess_family(self.pieces)

    def texts(self) -> tuple[bytes, ...]:
        """The text of every token id, space included: UTF-8, but not always whole characters.

        In byte-level vocabularies and for byte pieces (``<0x0A>``) these are exactly the bytes that
        the token stands for.
        """
        return texts_of(self.pieces, self.family, self.special)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> Vocabulary:
        """Read a Hugging Face tokenizer (slow or fast), a ``tokenizers.Tokenizer``, or a
        ``tiktoken.Encoding``.

        A tokenizer may list its tokens as bytes (as tiktoken-style ones do). Raises
        :class:`TokenizerError` for one that does not list its vocabulary.
        """
        source = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
        if hasattr(tokenizer, "decode_single_token_bytes"):
            return cls._from_ids(tiktoken_vocabulary(tokenizer), source)
        try:
            ids = tokenizer.get_vocab()
        except (AttributeError, NotImplementedError) as error:
            raise TokenizerError(
                f"The tokenizer {source!r} ({type(tokenizer).__name__}) does not list its "
                "vocabulary: tandem needs one with get_vocab()."
            ) from error
        return cls._from_ids(ids, source, declared_family(tokenizer), _special_ids(tokenizer))

    @classmethod
    def from_path(cls, path: str | Path) -> Vocabulary:
        """Read a folder or name that transformers can load, or a file: a ``tokenizer.json``, a JSON
        object of token to id, a SentencePiece ``tokenizer.model``, or a ``*.tiktoken``.

        Raises :class:`TokenizerError` where nothing of the kind is there.
        """
        file = Path(path)
        if file.is_file():
            return cls._from_file(file)
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise TokenizerError(
                f"Reading the tokenizer {str(path)!r} needs transformers: install it, or give a "
                "tokenizer.json file."
            ) from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path))
        except Exception as error:
            raise TokenizerError(f"No tokenizer could be read at {str(path)!r}: {error}") from error
        return cls.from_tokenizer(tokenizer)

    @classmethod
    def _from_file(cls, file: Path) -> Vocabulary:
        raw = file.read_bytes()
        if is_rank_file(raw):
            return cls._from_ids(read_rank_file(raw, str(file)), str(file))
        if file.suffix == ".model":
            ids, special = read_sentencepiece_file(file)
            return cls._from_ids(ids, str(file), "SentencePiece", special)
        try:
            content = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise TokenizerError(
                f"{str(file)!r} is not JSON: give a tokenizer folder, a tokenizer.json, or a JSON "
                "object of token to id."
            ) from error
        if isinstance(content, dict) and isinstance(content.get("model"), dict):
            from tokenizers import Tokenizer

            try:
                tokenizer = Tokenizer.from_file(str(file))
            except Exception as error:
                raise TokenizerError(
                    f"{str(file)!r} is no usable tokenizer.json: {error}"
                ) from error
            family, special = declared_family(tokenizer), _special_ids(tokenizer)
            return cls._from_ids(tokenizer.get_vocab(), str(file), family, special)
        if isinstance(content, dict) and all(type(i) is int for i in content.values()):
            return cls._from_ids(content, str(file))
        raise TokenizerError(
            f"{str(file)!r} is neither a tokenizer.json nor a JSON object of token to id."
        )

    @classmethod
    def _from_ids(
        cls,
        ids: Mapping[Any, int],
        source: str,
        family: Family | None = None,
        special: frozenset[int] = frozenset(),
    ) -> Vocabulary:
        if not ids:
            raise TokenizerError(f"The tokenizer {source!r} has an empty vocabulary.")
        lowest, highest = min(ids.values()), max(ids.values())
        if lowest < 0 or highest > MAX_TOKEN_ID:
            raise TokenizerError(
                f"The tokenizer {source!r} has token ids from {lowest} to {highest}: ids are "
                f"integers from 0 to {MAX_TOKEN_ID}."
            )
        if any(isinstance(piece, bytes) for piece in ids):
            # Tokens are bytes, and whatever is a string beside them is a special token.
            family = "byte-level BPE"
            special |= {i for piece, i in ids.items() if isinstance(piece, str)}
        pieces = [""] * (highest + 1)
        for piece, token_id in ids.items():
            pieces[token_id] = byte_level_piece(piece) if isinstance(piece, bytes) else piece
        return cls(tuple(pieces), source, family, special)

    def __len__(self) -> int:
        return len(self.pieces)


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids of the tokens that a tokenizer marks as special."""
    listed = getattr(tokenizer, "added_tokens_decoder", None)
    if listed is None and hasattr(tokenizer, "get_added_tokens_decoder"):
        listed = tokenizer.get_added_tokens_decoder()
    if not isinstance(listed, Mapping):
        return frozenset()
    return frozenset(i for i, token in listed.items() if getattr(token, "special", False))
