"""Replay of calls, whatever their rules, and of the rows of a trainer's batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError
from tandem_plugin.replay import TokenIds
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.training.rows import Row

__all__ = ["replay_each", "replay_rows"]


def replay_each(calls: Sequence[tuple[Rule, TokenIds, int]]) -> list[NDArray[np.bool_]]:
    """The authorship of each call's tokens, by its own rule and seed; those of a rule at once."""
    found: dict[int, NDArray[np.bool_]] = {}
    of_rule: dict[str, list[int]] = {}
    for number, (rule, _, _) in enumerate(calls):
        of_rule.setdefault(rule.fingerprint, []).append(number)
    for numbers in of_rule.values():
        rule = calls[numbers[0]][0]
        replayed = rule.replay_batch(
            [calls[number][1] for number in numbers], [calls[number][2] for number in numbers]
        )
        found |= zip(numbers, (authorship.senior for authorship in replayed), strict=True)
    return [found[number] for number in range(len(calls))]


def replay_rows(rows: Sequence[Row], rules: TandemRules) -> list[NDArray[np.bool_]]:
    """The authorship of every row, derived from its tokens and the seeds of its segments.

    rules: the trainer's own, of which each row takes that of the step in its settings. Returns bool
    ``[length of the response]`` for each, true where the senior is the author and false outside the
    segments. Raises :class:`AuthorshipError` for segments that do not lie in the response, one
    after the other.
    """
    segments: list[tuple[int, int, int]] = []
    calls: list[tuple[Rule, TokenIds, int]] = []
    for number, row in enumerate(rows):
        rule, done = rules.of(row.settings), 0
        for seed, start, stop in row.segments:
            if not done <= start < stop <= len(row.response_ids):
                raise AuthorshipError(
                    f"{row.name} has {len(row.response_ids)} response tokens and a generate call "
                    f"whose tokens are from {start} to {stop}, where those before end at {done}: "
                    "something between the agent loop and the trainer changed them."
                )
            segments.append((number, start, stop))
            calls.append((rule, row.response_ids[start:stop], seed))
            done = stop
    found = [np.zeros(len(row.response_ids), dtype=np.bool_) for row in rows]
    for (number, start, stop), senior in zip(segments, replay_each(calls), strict=True):
        found[number][start:stop] = senior
    return found
