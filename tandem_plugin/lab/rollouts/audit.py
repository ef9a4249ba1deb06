"""The comparison of recorded authorship with what seed and token ids replay to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tandem_plugin.authorship import Authorship
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import TandemError, shown
from tandem_plugin.files import read_json
from tandem_plugin.lab.rollouts.rollout import MalformedRow, Rollout, RolloutError, Segment
from tandem_plugin.rules import Rule, TandemRules

BATCH_ROWS = 128
"""Rows replayed together."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a row and its replay."""

    line: int
    kind: Literal["authorship", "length", "fingerprint", "vocabulary", "malformed"]
    message: str
    position: int | None = None
    """The first response position that differs, counted from 0."""
    file: str | None = None
    """The file, if there are several."""


def token_id_count(tokenizer: str, vocabulary: Vocabulary) -> int:
    """How many token ids a model with this tokenizer can sample: those from it on are nobody's.

    A checkpoint may have more than its tokenizer, whose vocabulary it pads. tokenizer: its place.
    """
    try:
        config = read_json(Path(tokenizer) / "config.json")
        sizes = [config.get("vocab_size"), config.get("text_config", {}).get("vocab_size")]
    except (OSError, ValueError, AttributeError):
        sizes = []
    return max([len(vocabulary), *(size for size in sizes if type(size) is int)])


def unknown_token(line: int, token_id: int, token_ids: int) -> Difference:
    """The difference of a row with a token id that the model lacks."""
    message = f"The token id {token_id} is outside the {token_ids} ids of this tokenizer."
    return Difference(line, "vocabulary", message)


class RuleBook:
    """The rule of each row: its own settings, combined with those of the command line.

    options: settings that rows do not record; a schedule's parameters apply to rows of that
    schedule. Raises :class:`ConfigError` for invalid options.
    """

    def __init__(self, vocabulary: Vocabulary, options: Mapping[str, Any]) -> None:
        self._vocabulary = vocabulary
        self._options = options
        self._schedule = TandemConfig.from_mapping(options).schedule
        self._rules: dict[str, TandemRules] = {}
        """By boundary resolver: each reads the whole vocabulary."""
        self._used: set[str] = set()
        self._overridden: dict[str, Any] = {}

    def rule(self, settings: Mapping[str, Any]) -> Rule:
        """The rule of a row; raises :class:`ConfigError` for invalid settings."""
        same = settings.get("schedule", self._schedule) == self._schedule
        overrides = {k: v for k, v in self._options.items() if same or k == "boundaries"}
        self._used |= overrides.keys() - settings.keys()
        self._overridden |= {k: settings[k] for k in overrides.keys() & settings.keys()}
        self._overridden.setdefault("schedule", settings.get("schedule", self._schedule))
        config = TandemConfig.from_mapping({**overrides, **settings})
        schedule = config.make_schedule()
        resolver = config.boundaries or schedule.boundaries
        if resolver not in self._rules:
            config = config.model_copy(update={"boundaries": resolver})
            self._rules[resolver] = TandemRules(config, self._vocabulary)
        return self._rules[resolver].for_schedule(schedule)

    def check_options(self) -> None:
        """Raise :class:`RolloutError` for an option that the settings of all rows overrode."""
        for name, value in self._options.items():
            recorded = self._overridden.get(name, value)
            if name not in self._used and recorded != value:
                raise RolloutError(
                    "replay-option-overridden", name=name, value=value, recorded=recorded
                )


@dataclass(slots=True)
class Audit:
    """The results of the rows so far."""

    rules: RuleBook
    keep: int
    """Maximum number of differences to keep; all are counted."""
    token_ids: int
    """How many token ids there are."""
    file: str | None = None
    """The name of the next rows' file, if there are several."""
    rows: int = 0
    """Rows with a tandem seed, and a token or more whose author is known, if they have any."""
    unknown_rows: int = 0
    """Rows with a tandem seed all of whose tokens are of unknown author."""
    solo_rows: int = 0
    """Rows that the senior wrote alone."""
    tokens: int = 0
    """Tokens that the team wrote, whose author is known."""
    unknown_tokens: int = 0
    """Tokens that two calls could have written with different authors."""
    senior_tokens: int = 0
    spans: int = 0
    handoffs: int = 0
    differing_rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Differences by kind."""
    differences: list[Difference] = field(default_factory=list)
    """The first of them."""

    def add(self, rows: Iterable[Rollout | MalformedRow]) -> None:
        """Compare rows in order, one batch in memory at a time, and count the results."""
        remaining = iter(rows)
        while batch := list(islice(remaining, BATCH_ROWS)):
            self._add(batch)

    def _add(self, batch: Sequence[Rollout | MalformedRow]) -> None:
        differences: dict[int, list[Difference]] = {}
        rules: dict[int, Rule] = {}
        calls: dict[str, tuple[Rule, list[tuple[Rollout, Segment]]]] = {}
        for row in batch:
            if isinstance(row, MalformedRow):
                differences[row.line] = [Difference(row.line, "malformed", row.message)]
                continue
            if (largest := max(row.response_ids, default=0)) >= self.token_ids:
                message = (
                    f"The token id {largest} is outside this tokenizer's {self.token_ids} ids."
                )
                differences[row.line] = [Difference(row.line, "vocabulary", message)]
                continue
            if row.seed is None:
                continue
            try:
                rules[row.line] = self.rules.rule(row.settings)
                of_calls = [
                    rules[row.line]
                    if segment.settings is None
                    else self.rules.rule(segment.settings)
                    for segment in row.segments
                ]
            except TandemError as error:
                differences[row.line] = [
                    Difference(row.line, "malformed", f"tandem_schedule: {error}")
                ]
                continue
            for rule, segment in zip(of_calls, row.segments, strict=True):
                calls.setdefault(rule.fingerprint, (rule, []))[1].append((row, segment))
        replayed = self._replayed(calls.values())
        for row in batch:
            if row.line not in differences and isinstance(row, Rollout):
                differences[row.line] = self._compared(row, rules.get(row.line), replayed)
            self._count(differences[row.line])

    def _replayed(
        self, calls: Iterable[tuple[Rule, list[tuple[Rollout, Segment]]]]
    ) -> dict[int, NDArray[np.bool_]]:
        """The authorship of each row by its line, junior where no call wrote."""
        expected: dict[int, NDArray[np.bool_]] = {}
        for rule, parts in calls:
            authors = rule.replay_batch(
                [row.response_ids[segment.start : segment.stop] for row, segment in parts],
                [segment.seed for _, segment in parts],
            )
            for (row, segment), authorship in zip(parts, authors, strict=True):
                senior_mask = expected.setdefault(
                    row.line, np.zeros(len(row.response_ids), np.bool_)
                )
                senior_mask[segment.start : segment.stop] = authorship.senior
                for part in _known(row, segment, authorship):
                    self.tokens += len(part)
                    self.senior_tokens += part.senior_tokens
                    self.spans += len(part.spans)
                    self.handoffs += part.handoffs
        return expected

    def _compared(
        self, row: Rollout, rule: Rule | None, replayed: Mapping[int, NDArray[np.bool_]]
    ) -> list[Difference]:
        if rule is None:
            self.solo_rows += 1
            alone = np.ones(len(row.response_ids), np.bool_)
            return [] if row.authorship is None else list(_authorship_differences(row, alone))
        unknown = sum(stop - start for start, stop in row.unknown)
        if unknown and unknown == sum(part.stop - part.start for part in row.segments):
            self.unknown_rows += 1
        else:
            self.rows += 1
        self.unknown_tokens += unknown
        differences = list(_authorship_differences(row, replayed[row.line]))
        if row.fingerprint != rule.fingerprint:
            message = (
                f"The row's fingerprint is {shown(row.fingerprint)}; the rules here have "
                f"{rule.fingerprint!r}."
            )
            differences.insert(0, Difference(row.line, "fingerprint", message))
        return differences

    def _count(self, differences: Iterable[Difference]) -> None:
        differences = [replace(difference, file=self.file) for difference in differences]
        self.differing_rows += bool(differences)
        self.counts.update(difference.kind for difference in differences)
        self.differences += differences[: max(0, self.keep - len(self.differences))]


def _known(row: Rollout, segment: Segment, authorship: Authorship) -> Iterator[Authorship]:
    """The parts of a segment between tokens of unknown author."""
    start = segment.start
    for first, last in (*row.unknown, (segment.stop, segment.stop)):
        stop = min(first, segment.stop)
        if start < stop:
            yield Authorship(authorship.senior[start - segment.start : stop - segment.start])
        start = max(start, last)


def _authorship_differences(row: Rollout, expected: NDArray[np.bool_]) -> Iterator[Difference]:
    recorded = np.array(row.authorship or [], np.bool_)
    if len(recorded) != len(expected):
        yield Difference(
            row.line,
            "length",
            f"The response has {len(expected)} tokens, its recorded authorship {len(recorded)}.",
        )
        return
    wrong = np.flatnonzero(recorded != expected)
    if wrong.size:
        first = int(wrong[0])
        author = {True: "senior", False: "junior"}
        yield Difference(
            row.line,
            "authorship",
            f"{wrong.size} of {len(expected)} tokens differ; the first is at position {first}: "
            f"recorded {author[bool(recorded[first])]}, replayed "
            f"{author[bool(expected[first])]}.",
            first,
        )
