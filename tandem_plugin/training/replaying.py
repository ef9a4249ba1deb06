"""Replay of many passages at once, in bounded memory; of the rows of a trainer's batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.training.rows import Row

__all__ = ["replay_passages", "replay_rows"]

_MOST_TOKENS = 1 << 22
"""Of one replay, padding included: some 40 bytes each."""


def replay_passages(
    rule: Rule, passages: Sequence[NDArray[np.int64]], seeds: Sequence[int]
) -> list[NDArray[np.bool_]]:
    """Who wrote each token of passages of any length, each from the first token of its call on.

    passages: int64 ``[length]`` each; seeds: one a passage. Returns bool ``[length]`` for each,
    true where the senior is the author.
    """
    lengths = [len(passage) for passage in passages]
    found: list[NDArray[np.bool_]] = [np.zeros(0, dtype=np.bool_)] * len(passages)
    for numbers in _chunks(lengths):
        replayed = rule.replay_batch(
            [passages[number] for number in numbers], [seeds[number] for number in numbers]
        )
        for number, authorship in zip(numbers, replayed, strict=True):
            found[number] = authorship.senior
    return found


def _chunks(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of passages, the longest first, so many at a time as one replay may pad."""
    chunk: list[int] = []
    most = 1
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if len(chunk) == most:
            yield chunk
            chunk = []
        if not chunk:
            most = max(1, _MOST_TOKENS // max(1, lengths[number]))
        chunk.append(number)
    if chunk:
        yield chunk


def replay_rows(rows: Sequence[Row], rules: TandemRules) -> list[NDArray[np.bool_]]:
    """The authorship of every row, derived from its tokens and the seeds of its passages.

    rules: the trainer's own, of which each row takes that of the step in its settings. Returns bool
    ``[length of the response]`` for each, true where the senior is the author and false outside the
    passages. Raises :class:`AuthorshipError` for passages that do not lie in the response, one
    after the other.
    """
    found = [np.zeros(len(row.response_ids), dtype=np.bool_) for row in rows]
    by_rule: dict[str, tuple[Rule, list[tuple[int, int, int, int]]]] = {}
    for number, row in enumerate(rows):
        rule = rules.of(row.settings)
        passages = by_rule.setdefault(rule.fingerprint, (rule, []))[1]
        done = 0
        for seed, start, stop in row.passages:
            if not done <= start < stop <= len(row.response_ids):
                raise AuthorshipError(
                    f"{row.name} has {len(row.response_ids)} response tokens and a generate call "
                    f"whose tokens are from {start} to {stop}, where those before end at {done}: "
                    "something between the agent loop and the trainer changed them."
                )
            passages.append((number, seed, start, stop))
            done = stop
    for rule, passages in by_rule.values():
        replayed = replay_passages(
            rule,
            [rows[number].response_ids[start:stop] for number, _, start, stop in passages],
            [seed for _, seed, _, _ in passages],
        )
        for (number, _, start, stop), senior in zip(passages, replayed, strict=True):
            found[number][start:stop] = senior
    return found
