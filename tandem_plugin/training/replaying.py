"""Replay of calls, whatever their rules, and of the rows of a trainer's batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.errors import AuthorshipError, FingerprintError
from tandem_plugin.replay import TokenIds
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.training.rows import Row

__all__ = ["replay_each", "replay_rows", "segment_rules"]


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

    rules: the trainer's own, of which each row takes that of the step in its settings, and a
    segment that which its call asked for. Returns bool ``[length of the response]`` for each, true
    where the senior is the author and false outside the segments. Raises :class:`AuthorshipError`
    for segments that do not lie in the response, one after the other, and
    :class:`FingerprintError` for a call under rules that are not the trainer's.
    """
    segments: list[tuple[int, int, int]] = []
    calls: list[tuple[Rule, TokenIds, int]] = []
    for number, row in enumerate(rows):
        done = 0
        for (seed, start, stop), rule in zip(row.segments, segment_rules(row, rules), strict=True):
            if not done <= start < stop <= len(row.response_ids):
                raise AuthorshipError(
                    "TP444",
                    row=row.name,
                    tokens=len(row.response_ids),
                    start=start,
                    stop=stop,
                    done=done,
                )
            segments.append((number, start, stop))
            calls.append((rule, row.response_ids[start:stop], seed))
            done = stop
    found = [np.zeros(len(row.response_ids), dtype=np.bool_) for row in rows]
    for (number, start, stop), senior in zip(segments, replay_each(calls), strict=True):
        found[number][start:stop] = senior
    return found


def segment_rules(row: Row, rules: TandemRules) -> list[Rule]:
    """The rule of each of a row's segments.

    Raises as :func:`replay_rows` does.
    """
    run = rules.for_recorded_step(row.settings)
    if not row.asked:
        return [run] * len(row.segments)
    if len(row.asked) != len(row.segments):
        raise AuthorshipError("TP445", row=row.name, calls=len(row.segments), rules=len(row.asked))
    found = []
    for asked in row.asked:
        rule = run if asked is None else rules.for_recorded_call(asked[1])
        if asked is not None and rule.fingerprint != asked[0]:
            raise FingerprintError(
                "TP446",
                row=row.name,
                schedule=asked[1].get("schedule"),
                fingerprint=asked[0],
                expected=rule.fingerprint,
            )
        found.append(rule)
    return found
