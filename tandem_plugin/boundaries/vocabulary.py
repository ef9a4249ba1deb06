"""A tokenizer's vocabulary, and the set of token ids that are boundaries."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.boundaries.vocabulary_families import (
    Family,
    byte_level_piece,
    declared_family,
    foreign_code,
    guess_family,
    sample_encodings,
    special_ids,
    texts_of,
)
from tandem_plugin.errors import AuthorshipError, TokenizerError
from tandem_plugin.files import parse_json
from tandem_plugin.files.checkpoints import hub_access, may_be_on_hub

MAX_TOKEN_ID = 2**24 - 1
"""The largest token id that a vocabulary may hold, far above any tokenizer's."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The raw piece of every token id, including the space marker (``Ġthe``, ``▁the``).

    pieces: one entry per token id; the empty string if the vocabulary has no token for an id.
    """

    pieces: tuple[str, ...]
    source: str
    """Where it was read from, for error messages."""
    declared: Family | None = None
    """The family given by the tokenizer itself, if any."""
    special: frozenset[int] = frozenset()
    """The ids of special tokens, if known: their pieces are plain text."""
    encodings: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """The encodings of some texts (``sample_encodings``), which resolvers compare their boundaries
    with. Empty for a bare list of tokens."""

    @property
    def family(self) -> Family:
        """How the pieces are written; guessed from them if the tokenizer does not specify it."""
        return self.declared or guess_family(self.pieces)

    def texts(self) -> tuple[bytes, ...]:
        """The text of every token id, including spaces: UTF-8, but not always whole characters.

        In byte-level vocabularies and for byte pieces (``<0x0A>``) these are exactly the bytes that
        the token represents.
        """
        return texts_of(self.pieces, self.family, self.special)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> Vocabulary:
        """Read a Hugging Face tokenizer (slow or fast), or a ``tokenizers.Tokenizer``.

        It may list its tokens as bytes, as the first Qwen does. Raises :class:`TokenizerError` for
        one that does not list its vocabulary.
        """
        source = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
        return cls._of_tokenizer(tokenizer, source)

    @classmethod
    def from_path(cls, path: str | Path) -> Vocabulary:
        """Read a tokenizer by folder, name or file.

        A folder or name must be one that transformers can load; a file can be a ``tokenizer.json``
        or a JSON object that maps tokens to ids. Raises :class:`TokenizerError` if there is no
        readable tokenizer.
        """
        try:
            if Path(path).is_file():
                return cls._of_file(Path(path))
        except OSError as error:
            raise TokenizerError("TP209", path=path, reason=error.strerror or error) from error
        if not (is_local := os.path.exists(path)) and not may_be_on_hub(str(path)):
            raise TokenizerError("TP991", tokenizer=path)
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise TokenizerError("TP210", path=path) from error
        said = f"No tokenizer could be read at {str(path)!r}"
        hub = hub_access(lambda reason: TokenizerError("TP204", said=said, error=reason))
        with foreign_code(said), nullcontext() if is_local else hub:
            return cls.from_tokenizer(AutoTokenizer.from_pretrained(str(path)))

    @classmethod
    def _of_tokenizer(cls, tokenizer: Any, source: str) -> Vocabulary:
        with foreign_code(
            f"The tokenizer {source!r} ({type(tokenizer).__name__}) does not list its vocabulary "
            "through get_vocab(), which tandem needs"
        ):
            ids = {token: index(i) for token, i in tokenizer.get_vocab().items()}
            family, special = declared_family(tokenizer), special_ids(tokenizer)
        return cls._listed(ids, source, family, special, sample_encodings(tokenizer))

    @classmethod
    def _of_file(cls, file: Path) -> Vocabulary:
        try:
            content = parse_json(file.read_bytes())
        except ValueError as error:
            raise TokenizerError("TP215", file=file, error=error) from error
        if not isinstance(content, dict):
            raise TokenizerError("TP216", file=file)
        if isinstance(content.get("model"), dict):
            from tokenizers import Tokenizer

            with foreign_code(f"{str(file)!r} is not a usable tokenizer.json"):
                return cls._of_tokenizer(Tokenizer.from_file(str(file)), str(file))
        if not all(type(token_id) is int for token_id in content.values()):
            raise TokenizerError("TP216", file=file)
        return cls._listed(content, str(file))

    @classmethod
    def _listed(
        cls,
        ids: Mapping[Any, int],
        source: str,
        family: Family | None = None,
        special: frozenset[int] = frozenset(),
        encodings: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Vocabulary:
        """ids: each token, as a string or as bytes, and its id. encodings: None for a bare list."""
        if not ids:
            raise TokenizerError("TP211", source=source)
        lowest, highest = min(ids.values()), max(ids.values())
        if lowest < 0 or highest > MAX_TOKEN_ID:
            raise TokenizerError(
                "TP212", source=source, lowest=lowest, highest=highest, largest=MAX_TOKEN_ID
            )
        if any(isinstance(piece, bytes) for piece in ids):
            # Tokens are bytes; any string among them is a special token.
            family = "byte-level BPE"
            special |= {i for piece, i in ids.items() if isinstance(piece, str)}
        by_id: dict[int, str] = {}
        for token, token_id in ids.items():
            piece = byte_level_piece(token) if isinstance(token, bytes) else token
            if token_id in by_id:
                raise TokenizerError(
                    "TP213", source=source, token_id=token_id, first=by_id[token_id], piece=piece
                )
            by_id[token_id] = piece
        pieces = tuple(by_id.get(i, "") for i in range(highest + 1))
        return cls(pieces, source, family, special, encodings or {})

    def __len__(self) -> int:
        return len(self.pieces)


def first_missed(
    vocabulary: Vocabulary, table: NDArray[np.bool_], texts: Iterable[str]
) -> str | None:
    """The first of these sample texts that is encoded without a boundary, and its encoding; None if
    none.

    table: bool ``[vocab]``, the boundaries. None as well for a vocabulary without encodings.
    """
    for text in texts:
        ids = vocabulary.encodings.get(text)
        if ids is None:
            continue
        known = [i for i in ids if 0 <= i < len(table)]
        if not table[known].any():
            written = " ".join(repr(vocabulary.pieces[i]) for i in known)
            return f"{text!r} becomes {written or 'nothing'}"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class BoundarySet:
    """The boundaries that a resolver found in one vocabulary.

    table: bool ``[vocabulary]``. Token ids beyond its end (a padded embedding) are not boundaries.
    """

    resolver: str
    table: NDArray[np.bool_]
    digest: str = field(init=False)
    """A hash of the boundary ids; independent of the vocabulary's padding."""

    def __post_init__(self) -> None:
        ids = np.flatnonzero(self.table).astype("<i8")
        object.__setattr__(self, "digest", hashlib.sha256(ids.tobytes()).hexdigest())

    def contains(self, token_ids: ArrayLike) -> NDArray[np.bool_]:
        """Whether each token id is a boundary: bool, with the shape of ``token_ids``.

        Raises :class:`AuthorshipError` for a negative id.
        """
        ids = np.asarray(token_ids, dtype=np.int64)
        # Negative ids are huge as unsigned ones: one pass finds the ordinary case.
        if not ids.size or int(ids.view(np.uint64).max()) < self.table.size:
            return self.table[ids]
        if int(ids.min()) < 0:
            raise AuthorshipError("TP201", token_id=int(ids.min()))
        known = ids < self.table.size
        found: NDArray[np.bool_] = known & self.table[np.where(known, ids, 0)]
        return found

    @property
    def count(self) -> int:
        """The number of token ids that are boundaries."""
        return int(self.table.sum())
