"""Authorship: who wrote each token of one response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tandem_plugin.errors import AuthorshipError


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of one author: response positions ``start`` to ``stop`` (exclusive)."""

    start: int
    stop: int
    author: Literal["senior", "junior"]
    text: str | None = None
    """Its text, if known; a character that a later span completed is in the one that began it."""

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Authorship:
    """One bool per response token, true where the senior is the author.

    senior: bool ``[length]``, or the zeros and ones used in files and tensors. Raises
    :class:`AuthorshipError` for anything but a flat sequence of these.
    """

    senior: NDArray[np.bool_]

    def __post_init__(self) -> None:
        object.__setattr__(self, "senior", _as_bools(self.senior))

    def __len__(self) -> int:
        return int(self.senior.size)

    def __iter__(self) -> Iterator[bool]:
        return iter(self.senior.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Authorship):
            return NotImplemented
        return bool(np.array_equal(self.senior, other.senior))

    def __hash__(self) -> int:
        return hash(self.senior.tobytes())

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans of the response, in order."""
        if not len(self):
            return ()
        cuts = np.flatnonzero(self.senior[1:] != self.senior[:-1]) + 1
        edges = [0, *cuts.tolist(), len(self)]
        return tuple(
            Span(start, stop, "senior" if self.senior[start] else "junior")
            for start, stop in pairwise(edges)
        )

    @property
    def handoffs(self) -> int:
        """The number of author changes."""
        return int(np.count_nonzero(self.senior[1:] != self.senior[:-1]))

    @property
    def senior_tokens(self) -> int:
        """The number of tokens that the senior wrote."""
        return int(np.count_nonzero(self.senior))

    @property
    def senior_share(self) -> float:
        """The senior's share of the tokens, from 0 to 1; NaN for an empty response."""
        return self.senior_tokens / len(self) if len(self) else float("nan")

    def tolist(self) -> list[int]:
        """Zeros and ones, for JSON."""
        return [int(bit) for bit in self.senior]


def _as_bools(values: ArrayLike) -> NDArray[np.bool_]:
    try:
        bits = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise AuthorshipError("authorship-not-bools") from error
    if bits.ndim != 1:
        raise AuthorshipError("authorship-not-flat", bits_shape=bits.shape)
    if bits.dtype != np.bool_ and not np.isin(bits, (0, 1)).all():
        raise AuthorshipError("authorship-not-binary")
    senior = bits.astype(np.bool_)
    senior.setflags(write=False)
    return senior
