"""A tokenizer's vocabulary, as boundary resolvers read it: the surface form of every token id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> Vocabulary:
        """Read a Hugging Face tokenizer (slow or fast) or a ``tokenizers.Tokenizer``."""
        source = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
        try:
            ids = tokenizer.get_vocab()
        except (AttributeError, NotImplementedError) as error:
            raise TokenizerError(
                f"The tokenizer {source!r} ({type(tokenizer).__name__}) does not list its "
                "vocabulary: tandem needs one with get_vocab()."
            ) from error
        return cls._from_ids(ids, source)

    @classmethod
    def from_path(cls, path: str | Path) -> Vocabulary:
        """Read a folder or name that transformers can load, a ``tokenizer.json``, or a JSON object
        of token to id.

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
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
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
            return cls._from_ids(tokenizer.get_vocab(), str(file))
        if isinstance(content, dict) and all(type(i) is int for i in content.values()):
            return cls._from_ids(content, str(file))
        raise TokenizerError(
            f"{str(file)!r} is neither a tokenizer.json nor a JSON object of token to id."
        )

    @classmethod
    def _from_ids(cls, ids: dict[str, int], source: str) -> Vocabulary:
        if not ids:
            raise TokenizerError(f"The tokenizer {source!r} has an empty vocabulary.")
        lowest, highest = min(ids.values()), max(ids.values())
        if lowest < 0 or highest > MAX_TOKEN_ID:
            raise TokenizerError(
                f"The tokenizer {source!r} has token ids from {lowest} to {highest}: ids are "
                f"integers from 0 to {MAX_TOKEN_ID}."
            )
        pieces = [""] * (highest + 1)
        for piece, token_id in ids.items():
            pieces[token_id] = piece
        return cls(tuple(pieces), source)

    def __len__(self) -> int:
        return len(self.pieces)
