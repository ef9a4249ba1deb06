"""A tokenizer's vocabulary, and the set of token ids that are boundaries."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.boundaries.round_trip import check_round_trip
from tandem_plugin.boundaries.tokenizer_files import (
    SentencePieceFile,
    Tokens,
    checked_token,
    file_to_read_alone,
    is_tekken,
    loading,
    tekken_tokens,
    tekkenizer,
    tekkenizer_tokens,
    tiktoken_tokens,
    whole_tokenizer,
)
from tandem_plugin.boundaries.vocabulary_families import (
    Family,
    byte_level_piece,
    declared_family,
    foreign_code,
    guess_family,
    is_byte_piece,
    sample_encodings,
    special_ids,
    texts_of,
)
from tandem_plugin.errors import AuthorshipError, TokenizerError
from tandem_plugin.files import parse_json, read_file
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

    def byte_pieces(self) -> frozenset[int]:
        """The ids of pieces that stand for one byte, such as ``<0x0A>``."""
        if self.family != "SentencePiece":
            return frozenset()
        byte_ids = (i for i, piece in enumerate(self.pieces) if is_byte_piece(piece))
        return frozenset(byte_ids) - self.special

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> Vocabulary:
        """Read a Hugging Face tokenizer (slow or fast), or a ``tokenizers.Tokenizer``.

        It may list its tokens as bytes, as the first Qwen does, or be one of mistral-common. Of a
        processor, which trainers load for checkpoints that also see images, it is the tokenizer.
        Raises :class:`TokenizerError` for one that does not list its vocabulary, that has none
        because its files are missing, or that does not give back a plain sentence.
        """
        if not hasattr(tokenizer, "get_vocab"):
            tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        source = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
        with loading(source):
            return cls._of_tokenizer(tokenizer, source)

    @classmethod
    def from_path(cls, path: str | Path) -> Vocabulary:
        """Read a tokenizer by folder, name or file.

        A folder with a complete ``tokenizer.json`` is read without transformers, which takes
        seconds to import; any other, and a name, must be one that transformers can load. Without
        it, a folder needs one of the files that can be read alone: a ``tokenizer.json``, a
        ``tekken.json``, a model of SentencePiece or tiktoken, or a JSON object that maps tokens to
        ids. Raises :class:`TokenizerError` if there is no readable tokenizer, and what
        :meth:`from_tokenizer` raises.
        """
        if os.path.isfile(path):
            return cls._of_file(Path(path))
        if not (is_local := os.path.exists(path)) and not may_be_on_hub(str(path)):
            raise TokenizerError("tokenizer-not-found", tokenizer=path)
        if (core := whole_tokenizer(Path(path))) is not None:
            with loading(str(path)):
                return cls._of_tokenizer(core, str(path))
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            if file := file_to_read_alone(Path(path)):
                return cls._of_file(file)
            raise TokenizerError(
                "tokenizer-needs-package", path=path, package="transformers"
            ) from error
        failure = f"No tokenizer could be read at {str(path)!r}"
        hub = hub_access(
            lambda reason: TokenizerError("vocabulary-unreadable", said=failure, error=reason)
        )
        with loading(str(path)), nullcontext() if is_local else hub:
            tokenizer = AutoTokenizer.from_pretrained(str(path))
            return cls._of_tokenizer(tokenizer, str(path))

    @classmethod
    def _of_tokenizer(cls, tokenizer: Any, source: str) -> Vocabulary:
        with foreign_code(
            f"The tokenizer {source!r} ({type(tokenizer).__name__}) does not list its vocabulary "
            "through get_vocab(), which tandem needs"
        ):
            inner = tekkenizer(tokenizer)
            listed = tokenizer.get_vocab() if inner is None else tekkenizer_tokens(inner)
            ids = {checked_token(token): index(i) for token, i in listed.items()}
            family, special = declared_family(tokenizer), special_ids(tokenizer)
        vocabulary = cls._listed(ids, source, family, special, sample_encodings(tokenizer))
        check_round_trip(tokenizer, vocabulary)
        return vocabulary

    @classmethod
    def _of_file(cls, file: Path) -> Vocabulary:
        try:
            content = read_file(file)
        except OSError as error:
            raise TokenizerError(
                "tokenizer-unreadable", path=file, reason=error.strerror or error
            ) from error
        try:
            parsed = parse_json(content)
        except ValueError as error:
            if (ranks := tiktoken_tokens(content)) is not None:
                return cls._listed(ranks, str(file))
            if ".model" not in file.name and file.suffix != ".spm":
                raise TokenizerError("tokenizer-not-json", file=file, error=error) from error
            with foreign_code(f"{str(file)!r} is not a usable model of SentencePiece"):
                return cls._of_tokenizer(SentencePieceFile(file), str(file))
        if not isinstance(parsed, dict):
            raise TokenizerError("tokenizer-format-unknown", file=file)
        return cls._of_json(parsed, file)

    @classmethod
    def _of_json(cls, content: dict[str, Any], file: Path) -> Vocabulary:
        if isinstance(content.get("model"), dict):
            from tokenizers import Tokenizer

            with foreign_code(f"{str(file)!r} is not a usable tokenizer.json"):
                return cls._of_tokenizer(Tokenizer.from_file(str(file)), str(file))
        if is_tekken(content):
            with foreign_code(f"{str(file)!r} is not a usable tekken.json"):
                return cls._listed(tekken_tokens(content), str(file))
        if not all(type(token_id) is int for token_id in content.values()):
            raise TokenizerError("tokenizer-format-unknown", file=file)
        return cls._listed(content, str(file))

    @classmethod
    def _listed(
        cls,
        ids: Mapping[str, int] | Tokens,
        source: str,
        family: Family | None = None,
        special: frozenset[int] = frozenset(),
        encodings: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Vocabulary:
        """ids: each token, as a string or as bytes, and its id. encodings: None for a bare list."""
        if not ids:
            raise TokenizerError("vocabulary-empty", source=source)
        lowest, highest = min(ids.values()), max(ids.values())
        if lowest < 0 or highest > MAX_TOKEN_ID:
            raise TokenizerError(
                "token-ids-invalid",
                source=source,
                lowest=lowest,
                highest=highest,
                largest=MAX_TOKEN_ID,
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
                    "token-id-ambiguous",
                    source=source,
                    token_id=token_id,
                    first=by_id[token_id],
                    piece=piece,
                )
            by_id[token_id] = piece
        pieces = tuple(by_id.get(i, "") for i in range(highest + 1))
        if not any(p.strip(" ▁Ġ") for i, p in enumerate(pieces) if i not in special):
            raise TokenizerError("vocabulary-empty", source=source)
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
        listed_ids = [i for i in ids if 0 <= i < len(table)]
        if not table[listed_ids].any():
            written = " ".join(repr(vocabulary.pieces[i]) for i in listed_ids)
            return f"{text!r} becomes {written or 'nothing'}"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class BoundarySet:
    """The boundaries that a resolver found in one vocabulary, or the class of each token.

    table: bool ``[vocabulary]``, or with ``classes`` int64 ``[vocabulary]``. Token ids beyond its
    end (a padded embedding) are not boundaries, and of class 0.
    """

    resolver: str
    table: NDArray[np.bool_] | NDArray[np.int64]
    classes: tuple[str, ...] = ()
    """The names of the classes, in order; empty if tokens are boundaries or not."""
    digest: str = field(init=False)
    """A hash of the boundary ids, or of classes and ids; independent of the vocabulary's padding.
    """

    def __post_init__(self) -> None:
        ids = np.flatnonzero(self.table).astype("<i8")
        digest = hashlib.sha256(ids.tobytes())
        if self.classes:
            digest.update(self.table[ids].astype("<i8").tobytes())
            digest.update(json.dumps(self.classes).encode())
        object.__setattr__(self, "digest", digest.hexdigest())

    def contains(self, token_ids: ArrayLike) -> NDArray[np.bool_]:
        """Whether each token id is a boundary, or in a class other than 0: see :meth:`read`."""
        return self.read(token_ids).astype(np.bool_, copy=False)

    def read(self, token_ids: ArrayLike) -> NDArray[np.bool_] | NDArray[np.int64]:
        """What a schedule reads of each token id, with the shape of ``token_ids``.

        Returns bool, whether it is a boundary, or int64, its class. Raises
        :class:`AuthorshipError` for a negative id.
        """
        ids = np.asarray(token_ids, dtype=np.int64)
        # Negative ids are huge as unsigned ones: one pass finds the ordinary case.
        if not ids.size or int(ids.view(np.uint64).max()) < self.table.size:
            return self.table[ids]
        if int(ids.min()) < 0:
            raise AuthorshipError("token-id-negative", token_id=int(ids.min()))
        is_listed = ids < self.table.size
        return np.where(
            is_listed, self.table[np.where(is_listed, ids, 0)], self.table.dtype.type(0)
        )

    @property
    def count(self) -> int:
        """The number of token ids that are boundaries, or in a class other than 0."""
        return int(np.count_nonzero(self.table))
