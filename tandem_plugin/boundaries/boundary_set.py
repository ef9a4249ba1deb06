"""A boundary set: which token ids are boundaries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.errors import AuthorshipError

__all__ = ["BoundarySet"]


@dataclass(frozen=True, slots=True, eq=False)
class BoundarySet:
    """The boundaries that a resolver found in one vocabulary.

    table: bool ``[vocabulary]``. Token ids past its end (a padded embedding) are no boundaries.
    """

    resolver: str
    table: NDArray[np.bool_]
    digest: str = field(init=False)
    """Which ids are boundaries, hashed; the same however far the vocabulary is padded."""

    def __post_init__(self) -> None:
        ids = np.flatnonzero(self.table).astype("<i8")
        object.__setattr__(self, "digest", hashlib.sha256(ids.tobytes()).hexdigest())

    def contains(self, token_ids: ArrayLike) -> NDArray[np.bool_]:
        """Whether each token id is a boundary: bool, of the shape of ``token_ids``.

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
        """How many token ids are boundaries."""
        return int(self.table.sum())
