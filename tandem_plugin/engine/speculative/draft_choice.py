"""``drafts: auto``: the number of drafts by batch size, from the time that steps take at startup.

The scheduler's process times steps of a few made-up requests, at batch sizes and numbers of
drafts, before the engine answers any. What a round writes is computed, since it depends on text
that nobody has written yet; what it costs is measured. This file imports neither torch nor vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise, repeat
from typing import TypeAlias

CANDIDATES = (0, 2, 4, 8)
"""The numbers of drafts to choose from; without drafts a step does what lockstep does."""

ACCEPTED = 0.96
"""The share of its own drafts that a senior accepts: measured 0.96 to 0.98 on an H200."""

Seconds: TypeAlias = Mapping[int, Mapping[int, float]]
"""Seconds of a step, by batch size and number of drafts."""

Lengths: TypeAlias = list[frozenset[int]]
"""The numbers of drafts that a step of each batch size may have."""

Timer: TypeAlias = Callable[[int, int], float | None]
"""Of a batch size and a number of drafts, the seconds of a step; None if no step can have both."""


def tokens_per_round(drafts: int, accepted: float = ACCEPTED, p: float = 0.5) -> float:
    """Tokens that a round of so many drafts writes, if authors are drawn token by token.

    1 + s + ... + s^(k-1) + p s^k, with s = (1 - p) + p a: the junior keeps its own drafts, and the
    senior its share a of those that it would have written. Without drafts it is one token.
    """
    if not drafts:
        return 1.0
    survival = (1 - p) + p * accepted
    powers = list(accumulate(repeat(survival, drafts), lambda power, s: power * s, initial=1.0))
    return sum(powers[:-1]) + p * powers[-1]


def timed(timer: Timer, largest: int) -> dict[int, dict[int, float]]:
    """What steps take at powers of two up to ``largest``, which is the last size.

    A size at which no step without drafts was timed, and those beyond it, are left out.
    """
    seconds: dict[int, dict[int, float]] = {}
    for size in _sizes(largest):
        times = {drafts: timer(size, drafts) for drafts in CANDIDATES}
        if times[0] is None:
            break
        seconds[size] = {drafts: time for drafts, time in times.items() if time is not None}
    return seconds


def chosen(seconds: Seconds, largest: int, p: float) -> dict[int, int]:
    """The table of drafts: at no timed size slower than without drafts, and fewest if alike.

    p: the senior's share of tokens, for what a round writes. largest: the largest batch size.
    """
    return table_of(
        {
            size: {drafts: tokens_per_round(drafts, p=p) / time for drafts, time in times.items()}
            for size, times in seconds.items()
        },
        largest,
    )


def table_of(speeds: Mapping[int, Mapping[int, float]], largest: int) -> dict[int, int]:
    """The setting ``drafts`` derived from speeds, by batch size and number of drafts.

    Between two sizes it has the smaller of their numbers, and beyond the last one none. speeds: at
    least that without drafts, under 0, at every size. largest: ``max_num_seqs``.
    """
    sizes = sorted(speeds)
    if not sizes:
        return {1: 0}
    # Of equally fast ones the fewest drafts: 0 if none is faster than lockstep.
    best = {size: max(sorted(speeds[size]), key=speeds[size].__getitem__) for size in sizes}
    table = {1: best[sizes[0]]}
    for size, following in pairwise(sizes):
        fewer = best[following] < best[size]
        table[size + 1 if fewer else following] = best[following]
    if sizes[-1] < largest:
        table[sizes[-1] + 1] = 0
    changes = [(1, table[1])]
    changes += [(size, n) for (_, before), (size, n) in pairwise(table.items()) if n != before]
    return dict(changes)


def ranges_of(table: dict[int, int]) -> list[tuple[int, int, int]]:
    """A table of drafts as vLLM's, of (first batch size, last, drafts).

    vLLM applies the last number to all larger batch sizes.
    """
    firsts = [*table, max(table) + 1]
    return [(first, after - 1, table[first]) for first, after in pairwise(firsts)]


def _sizes(largest: int) -> Iterator[int]:
    size = 1
    while size < largest:
        yield size
        size *= 2
    yield largest
