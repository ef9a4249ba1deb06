"""Replay of the rows of a trainer's batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.training.rows import Row

__all__ = ["replay_rows"]


def replay_rows(rows: Sequence[Row], rules: TandemRules) -> list[NDArray[np.bool_]]:
    """The authorship of every row, derived from its tokens and the seeds of its segments.

    rules: the trainer's own, of which each row takes that of the step in its settings. Returns bool
    ``[length of the response]`` for each, true where the senior is the author and false outside the
    segments. Raises :class:`AuthorshipError` for segments that do not lie in the response, one
    after the other.
    """
    found = [np.zeros(len(row.response_ids), dtype=np.bool_) for row in rows]
    by_rule: dict[str, tuple[Rule, list[tuple[int, int, int, int]]]] = {}
    for number, row in enumerate(rows):
        rule = rules.of(row.settings)
        segments = by_rule.setdefault(rule.fingerprint, (rule, []))[1]
        done = 0
        for seed, start, stop in row.segments:
            if not done <= start < stop <= len(row.response_ids):
                raise AuthorshipError(
                    f"{row.name} has {len(row.response_ids)} response tokens and a generate call "
                    f"whose tokens are from {start} to {stop}, where those before end at {done}: "
                    "something between the agent loop and the trainer changed them."
                )
            segments.append((number, seed, start, stop))
            done = stop
    for rule, segments in by_rule.values():
        replayed = rule.replay_batch(
            [rows[number].response_ids[start:stop] for number, _, start, stop in segments],
            [seed for _, seed, _, _ in segments],
        )
        for (number, _, start, stop), authorship in zip(segments, replayed, strict=True):
            found[number][start:stop] = authorship.senior
    return found
