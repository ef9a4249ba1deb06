"""Checks of every training batch before a trainer may learn from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem_plugin._replay import TokenIds
from tandem_plugin.errors import AuthorshipError, EngineError, FingerprintError
from tandem_plugin.rules import Rule, TandemRules
from tandem_plugin.training.authorship_wire import ResponseAuthorship, bits_of
from tandem_plugin.training.rows import Row
from tandem_plugin.training.validation import Answerer, rule_of


def check_rows(rows: Sequence[Row], rules: TandemRules) -> None:
    """Raise unless every row's authorship is its replay and its masks are the senior's, exactly.

    Every row is replayed here from its tokens and seeds; nothing sent with it is trusted. rules:
    the trainer's own. Raises :class:`AuthorshipError`, :class:`FingerprintError`, or
    :class:`EngineError` for a trajectory that the engine rejected.
    """
    check_no_errors(rows)
    if not rows:
        raise AuthorshipError("batch-empty")
    facts = [_checked_facts(row, rules) for row in rows]
    for row, checked, senior in zip(rows, facts, replay_rows(rows, rules), strict=True):
        _check_replay(row.name, checked, senior)
        _check_masks(row, checked, senior)
    _check_seeds(rows)
    unknown = sum(int(fact.unknown_mask.sum()) for fact in facts)
    trained = sum(int(fact.trained_mask.sum()) for fact in facts)
    _check_unknown(unknown, trained, rules.config.max_unknown_share)
    _check_trains(rows)


class RowChecks:
    """Checks of a run whose rows come singly: each as :func:`check_rows` does.

    The share of tokens of unknown author is a batch's: of the rows of one update, when the
    last of them has come and before that update.
    """

    def __init__(self, rules: TandemRules) -> None:
        self._rules = rules
        self._caller: dict[int, str] = {}
        self._rows = self._unknown = self._trained = 0

    def check(self, row: Row, batch: int) -> None:
        """Raise like :func:`check_rows`; a row may come once. batch: the rows of an update."""
        check_no_errors([row])
        facts = _checked_facts(row, self._rules)
        (senior,) = replay_rows([row], self._rules)
        _check_replay(row.name, facts, senior)
        _check_masks(row, facts, senior)
        _check_seeds_of(row, self._caller)
        self._unknown += int(facts.unknown_mask.sum())
        self._trained += int(facts.trained_mask.sum())
        _check_trains([row])
        self._rows += 1
        if self._rows >= batch:
            _check_unknown(self._unknown, self._trained, self._rules.config.max_unknown_share)
            self._rows = self._unknown = self._trained = 0


def check_validation_rows(
    rows: Sequence[Row], answerer: Answerer | None, rules: TandemRules
) -> None:
    """Raise unless every validation response was written by the intended author.

    answerer: None for the senior alone. Raises like :func:`check_rows`.
    """
    check_no_errors(rows)
    for row in rows:
        if answerer == "team":
            _checked_facts(row, rules)
        elif answerer == "junior":
            facts = _checked_facts(row, rules, rule_of(rules, answerer, 0))
            if facts.authorship.any():
                raise AuthorshipError("validation-not-juniors", row=row.name)
        elif row.facts is not None:
            raise AuthorshipError("validation-written-by-team", row=row.name)


def check_no_errors(rows: Iterable[Row]) -> None:
    """Raise :class:`EngineError` if a trajectory failed in tandem."""
    for row in rows:
        if row.error is not None:
            raise EngineError("trajectory-failed", error=row.error)


def replay_rows(rows: Sequence[Row], rules: TandemRules) -> list[NDArray[np.bool_]]:
    """The authorship of every row with facts, from its tokens and the seeds of its segments.

    rules: the trainer's own. Returns bool ``[length of the response]`` for each, false outside the
    segments. Raises :class:`AuthorshipError` for segments that are not in the response, one after
    the other.
    """
    segments: list[tuple[int, int, int]] = []
    calls: list[tuple[Rule, TokenIds, int]] = []
    for number, row in enumerate(rows):
        assert row.facts is not None
        done = 0
        rule = rules.for_recorded_step(row.facts.settings)
        for seed, start, stop in row.facts.segments:
            if not done <= start < stop <= len(row.response_ids):
                raise AuthorshipError(
                    "generate-calls-overlap",
                    row=row.name,
                    tokens=len(row.response_ids),
                    start=start,
                    stop=stop,
                    done=done,
                )
            segments.append((number, start, stop))
            calls.append((rule, row.response_ids[start:stop], seed))
            done = stop
    authors = [np.zeros(len(row.response_ids), dtype=np.bool_) for row in rows]
    for (number, start, stop), senior in zip(segments, _replay_each(calls), strict=True):
        authors[number][start:stop] = senior
    return authors


def _replay_each(calls: Sequence[tuple[Rule, TokenIds, int]]) -> list[NDArray[np.bool_]]:
    """The authorship of each call's tokens, by its row's rule and its seed; one batch per rule."""
    authors: dict[int, NDArray[np.bool_]] = {}
    of_rule: dict[str, list[int]] = {}
    for number, (rule, _, _) in enumerate(calls):
        of_rule.setdefault(rule.fingerprint, []).append(number)
    for numbers in of_rule.values():
        rule = calls[numbers[0]][0]
        replayed = rule.replay_batch(
            [calls[number][1] for number in numbers], [calls[number][2] for number in numbers]
        )
        authors |= zip(numbers, (authorship.senior for authorship in replayed), strict=True)
    return [authors[number] for number in range(len(calls))]


def _checked_facts(row: Row, rules: TandemRules, rule: Rule | None = None) -> ResponseAuthorship:
    """The facts of a row with a junior; raise unless they match its response and the run.

    rule: None for the rule of the step that the row records.
    """
    facts, length = row.facts, len(row.response_ids)
    if facts is None:
        raise AuthorshipError("row-without-authorship", row=row.name)
    if facts.length != length:
        raise AuthorshipError(
            "authorship-length-differs", row=row.name, length=length, entries=facts.length
        )
    expected = rule or rules.for_recorded_step(facts.settings)
    if facts.fingerprint != expected.fingerprint:
        raise FingerprintError(
            "row-rules-differ",
            row=row.name,
            fingerprint=facts.fingerprint,
            expected=expected.fingerprint,
        )
    if dict(facts.settings) != expected.settings():
        raise AuthorshipError(
            "row-settings-differ",
            row=row.name,
            settings=dict(facts.settings),
            expected=expected.settings(),
        )
    if facts.junior not in (None, rules.config.junior):
        raise AuthorshipError(
            "row-junior-differs", row=row.name, junior=facts.junior, expected=rules.config.junior
        )
    return facts


def _check_replay(row: str, facts: ResponseAuthorship, senior: NDArray[np.bool_]) -> None:
    """Raise unless the row's authorship equals the replay of its tokens."""
    if facts.segments and facts.seed != facts.segments[0][0]:
        raise AuthorshipError(
            "row-seeds-mixed", row=row, seed=facts.seed, segment_seed=facts.segments[0][0]
        )
    differing = np.flatnonzero(facts.authorship != senior)
    if differing.size:
        raise AuthorshipError(
            "authorship-replay-differs", row=row, count=differing.size, position=int(differing[0])
        )


def _check_masks(row: Row, facts: ResponseAuthorship, senior: NDArray[np.bool_]) -> None:
    """Raise unless the masks are the senior's part of what the agent loop would train.

    Tokens of unknown author are in no mask. Their list cannot be verified here, because dropped
    calls are not sent.
    """
    trained, unknown = facts.trained_mask, facts.unknown_mask
    written = bits_of(((start, stop) for _, start, stop in facts.segments), len(senior))
    unwritten = np.flatnonzero(trained & ~written)
    if unwritten.size:
        raise AuthorshipError(
            "trained-tokens-without-call",
            row=row.name,
            count=unwritten.size,
            position=int(unwritten[0]),
        )
    if (unknown & ~trained).any():
        raise AuthorshipError("unknown-authors-untrained", row=row.name)
    expected = trained & ~unknown & senior
    masks = {"response_mask": row.response_mask}
    if row.loss_mask is not None:
        masks["loss_mask"] = row.loss_mask
    for name, mask in masks.items():
        if len(mask) != len(expected):
            raise AuthorshipError(
                "row-field-length-differs",
                row=row.name,
                tokens=len(expected),
                entries=len(mask),
                name=name,
            )
        differing = np.flatnonzero(mask != expected)
        if differing.size:
            raise AuthorshipError(
                "mask-not-seniors",
                name=name,
                row=row.name,
                count=differing.size,
                position=int(differing[0]),
            )


def _check_seeds(rows: Sequence[Row]) -> None:
    """Raise if two generate calls of a batch had one tandem seed, and thus the same draws.

    A row that is in the batch several times, with its name and tokens, counts once.
    """
    caller: dict[int, str] = {}
    for row in {(row.name, row.response_ids.tobytes()): row for row in rows}.values():
        _check_seeds_of(row, caller)


def _check_seeds_of(row: Row, caller: dict[int, str]) -> None:
    """Raise if one of a row's seeds has a caller, by whose name it is then known."""
    assert row.facts is not None
    for seed in [seed for seed, _, _ in row.facts.segments] or [row.facts.seed]:
        if seed in caller:
            raise AuthorshipError("row-seed-repeated", row=row.name, seed=seed, other=caller[seed])
        caller[seed] = row.name


def _check_unknown(unknown: int, trained: int, most: float) -> None:
    """Raise if the authors of too many of the trained tokens are unknown; most: largest share."""
    if unknown > most * trained:
        raise AuthorshipError(
            "unknown-authors-too-many",
            unknown=unknown,
            trained=trained,
            share=unknown / trained,
            most=most,
        )


def _check_trains(rows: Sequence[Row]) -> None:
    """Raise if the whole batch has nothing to learn from."""
    if not any(row.response_mask.any() for row in rows):
        raise AuthorshipError("batch-without-senior-tokens", responses=len(rows))


class AdmittedBatch:
    """The masks of the last checked batch, by its rows' names."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._masks = {row.name: row.response_mask for row in rows}

    def check(self, rows: Sequence[Row], rejects: bool) -> None:
        """Raise :class:`AuthorshipError` unless an update trains on what was admitted.

        rows: with the masks that the loss will use. Rows outside the batch are padding and must
        train nothing. rejects: whether tokens may be dropped, as rejection sampling does.
        """
        for row in rows:
            masks = {"response_mask": row.response_mask, "loss_mask": row.loss_mask}
            for name, mask in masks.items():
                if mask is not None:
                    self._check_mask(row.name, name, mask, rejects)

    def _check_mask(self, row: str, name: str, mask: NDArray[np.bool_], rejects: bool) -> None:
        admitted = self._masks.get(row)
        if admitted is None:
            if mask.any():
                raise AuthorshipError("row-not-checked", row=row, tokens=int(mask.sum()))
            return
        if len(mask) != len(admitted):
            raise AuthorshipError(
                "row-length-changed", row=row, tokens=len(admitted), entries=len(mask), name=name
            )
        changed = mask & ~admitted if rejects else mask != admitted
        if changed.any():
            raise AuthorshipError(
                "mask-changed-after-check",
                name=name,
                row=row,
                count=int(changed.sum()),
                position=int(changed.argmax()),
            )
