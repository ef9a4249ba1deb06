"""The authorship data of a response, sent by the process that generated it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError


def ranges_of(bits: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The runs of true in ``bits``, as (start, stop)."""
    padded = np.concatenate(([False], bits, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return list(pairwise(edges))[::2]


def bits_of(ranges: Iterable[Sequence[int]], length: int) -> NDArray[np.bool_]:
    """Bool ``[length]``, true in the ranges (start, stop), which may extend beyond it."""
    bits = np.zeros(length, dtype=np.bool_)
    for start, stop in ranges:
        bits[start:stop] = True
    return bits


AUTHORSHIP = "tandem"
"""The column with a response's :class:`ResponseAuthorship`."""


Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ResponseAuthorship:
    """Who wrote a response, and by which rule: what a trainer's process replays and compares."""

    fingerprint: str
    """The fingerprint of the rule that decided the authorship."""
    settings: Mapping[str, Any]
    """The rule's settings: schedule, parameters (the training step among them), resolver."""
    seed: int
    """The tandem seed of the first segment; of the first call if there are no segments."""
    length: int
    """The number of tokens."""
    segments: tuple[tuple[int, int, int], ...]
    """(seed, start, stop) of every generate call with a trained token, from its first token up to
    its last trained one: more than one in multi-turn loops."""
    senior: tuple[Range, ...]
    """(start, stop) of the senior's tokens. Tokens outside all segments have no author."""
    trained: tuple[Range, ...]
    """(start, stop) of the tokens that the agent loop would train."""
    junior: str | None = None
    """The junior's name in the run's settings; None if they name none."""
    unknown: tuple[Range, ...] = ()
    """(start, stop) of the trained tokens that two calls could have written with different authors,
    which are not trained; ``senior`` and ``segments`` name one of the two."""

    @property
    def authorship(self) -> NDArray[np.bool_]:
        """Bool ``[length]``: true where the senior is the author, as the segments replay to."""
        return bits_of(self.senior, self.length)

    @property
    def trained_mask(self) -> NDArray[np.bool_]:
        """Bool ``[length]``: the tokens that the agent loop would train."""
        return bits_of(self.trained, self.length)

    @property
    def unknown_mask(self) -> NDArray[np.bool_]:
        """Bool ``[length]``: the tokens of unknown author that the agent loop would train."""
        return bits_of(self.unknown, self.length)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Bool ``[length]``: the senior's tokens among those to train."""
        return self.trained_mask & self.authorship & ~self.unknown_mask

    @property
    def junior_mask(self) -> NDArray[np.bool_]:
        """Bool ``[length]``: the junior's tokens among those to train, which can be imitated."""
        return self.trained_mask & ~self.authorship & ~self.unknown_mask

    @property
    def start(self) -> int:
        """The position of the first segment or trained token; 0 if there is neither."""
        segments = [start for _, start, _ in self.segments]
        return min([*segments, *(start for start, _ in self.trained)], default=0)

    def part(self, start: int, stop: int) -> ResponseAuthorship:
        """The facts of the tokens from ``start`` up to ``stop`` alone, counted from ``start``.

        No segment may begin before ``start``; tokens from ``stop`` on were truncated.
        """

        def within(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
            cut = ((max(first - start, 0), min(last, stop) - start) for first, last in ranges)
            return tuple((first, last) for first, last in cut if first < last)

        segments_kept = sum(first < stop for _, first, _ in self.segments)
        return replace(
            self,
            length=max(min(self.length, stop) - start, 0),
            segments=tuple(
                (seed, first - start, min(last, stop) - start)
                for seed, first, last in self.segments[:segments_kept]
            ),
            senior=within(self.senior),
            trained=within(self.trained),
            unknown=within(self.unknown),
        )

    def to_wire(self) -> dict[str, Any]:
        """The mapping that :meth:`from_wire` accepts."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any] | None) -> ResponseAuthorship | None:
        """The facts sent with a response; None if there were none.

        Raises :class:`AuthorshipError` for facts from a different version of this package.
        """
        if wire is None:
            return None
        names = {field.name for field in fields(cls)}
        if not isinstance(wire, Mapping) or wire.keys() != names:
            received = sorted(wire) if isinstance(wire, Mapping) else wire
            raise AuthorshipError(
                "authorship-fields-differ", found=received, expected=", ".join(sorted(names))
            )
        ranged = ("segments", "senior", "trained", "unknown")
        ranges = {name: tuple(map(tuple, wire[name])) for name in ranged}
        return cls(**{**wire, **ranges})
