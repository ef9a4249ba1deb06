"""Traces without a seed, from other implementations, and the distribution of their authors.

Where an author is drawn follows from the token ids alone. Between two such positions the author
cannot change; at each of them it is the senior with probability p, whatever it was before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from tandem_plugin.boundaries import BoundarySet
from tandem_plugin.files import parse_json, read_file, system_reason
from tandem_plugin.lab.rollouts.audit import Difference, unknown_token
from tandem_plugin.lab.rollouts.rollout import Bit, RolloutError, TokenId
from tandem_plugin.schedules.bernoulli import BernoulliSchedule

LEVEL = 0.001
"""The probability that both tests together reject traces that follow the schedule."""


_NORMAL = NormalDist()


class _Trace(BaseModel):
    """A rollout of ours, a completion of the paper's release, or of a reproduction of it."""

    model_config = ConfigDict(strict=True)

    ids: list[TokenId] = Field(validation_alias=AliasChoices("response_ids", "token_ids"))
    authors: list[Bit] = Field(
        validation_alias=AliasChoices("authorship", "tandem_model_mask", "model_mask")
    )


@dataclass(frozen=True, slots=True)
class LawTest:
    """A two-sided test of one share against its distribution, by the normal approximation."""

    observed: float
    expected: float
    error: float
    """The standard error of ``observed`` under the law."""

    @property
    def p_value(self) -> float:
        """The probability of a share at least as far from the expected one."""
        if self.error == 0:
            return float(self.observed == self.expected)
        return 2 * _NORMAL.cdf(-abs(self.observed - self.expected) / self.error)

    @property
    def is_as_expected(self) -> bool:
        return self.p_value >= LEVEL / 2  # Bonferroni: there are two of them


@dataclass(slots=True)
class TraceAudit:
    """The results of the traces so far."""

    schedule: BernoulliSchedule
    boundaries: BoundarySet
    keep: int
    """How many differences to keep; all are counted."""
    token_ids: int
    """How many token ids there are."""
    rows: int = 0
    tokens: int = 0
    senior_tokens: int = 0
    draws: int = 0
    senior_draws: int = 0
    pairs: int = 0
    """Draws with an earlier draw in the same response."""
    changes: int = 0
    """Such draws that changed the author."""
    triples: int = 0
    """Draws with two earlier draws in the same response."""
    wrong_changes: int = 0
    """Changes of author without a draw."""
    differing_rows: int = 0
    differences: list[Difference] = field(default_factory=list)

    def add(self, traces: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Count numbered traces; a malformed one counts as differing."""
        for line, trace in traces:
            try:
                difference = self._counted(line, *_arrays(trace))
            except RolloutError as error:
                difference = Difference(line, "malformed", str(error))
            if difference is not None:
                self.differing_rows += 1
                if len(self.differences) < self.keep:
                    self.differences.append(difference)

    def tests(self) -> dict[str, LawTest]:
        """The senior's share of draws, and the share of draws that change the author.

        Draws are independent. With q = 1 - p, the number of changes among n of them has the mean
        2pq (n - 1) and the variance 2pq (1 - 2pq) (n - 1) + 2 (pq - 4 p^2 q^2) (n - 2):
        neighbouring changes share a draw.
        """
        p = self.schedule.p
        pq = p * (1 - p)
        tests = {}
        if self.draws:
            tests["senior share of draws"] = LawTest(
                self.senior_draws / self.draws, p, sqrt(pq / self.draws)
            )
        if self.pairs:
            variance = 2 * pq * (1 - 2 * pq) * self.pairs + 2 * (pq - 4 * pq**2) * self.triples
            tests["draws that change the author"] = LawTest(
                self.changes / self.pairs, 2 * pq, sqrt(max(0.0, variance)) / self.pairs
            )
        return tests

    def _counted(
        self, line: int, ids: NDArray[np.int64], authors: NDArray[np.bool_]
    ) -> Difference | None:
        if len(ids) and (largest := int(ids.max())) >= self.token_ids:
            return unknown_token(line, largest, self.token_ids)
        self.rows += 1
        if not len(ids):
            return None
        is_boundary = self.boundaries.contains(ids)[None, :]
        _, runs = self.schedule.walk(is_boundary, np.zeros((1, len(ids) + 1)))
        drawn = np.asarray(runs[0, :-1] == 0)
        wrong = np.flatnonzero((authors[1:] != authors[:-1]) & ~drawn[1:]) + 1
        draws = authors[drawn]
        self.tokens += len(ids)
        self.senior_tokens += int(authors.sum())
        self.draws += len(draws)
        self.senior_draws += int(draws.sum())
        self.pairs += max(0, len(draws) - 1)
        self.triples += max(0, len(draws) - 2)
        self.changes += int((draws[1:] != draws[:-1]).sum())
        self.wrong_changes += wrong.size
        if not wrong.size:
            return None
        first = int(wrong[0])
        return Difference(
            line,
            "authorship",
            f"{wrong.size} author changes where the schedule does not draw, the first at position "
            f"{first}.",
            first,
        )


def read_traces(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Numbered traces: the rows of a JSONL file, or the ``samples`` of a result's ``gens``.

    Raises :class:`RolloutError` for a file that is neither, is unreadable, or holds texts alone.
    """
    try:
        content = read_file(path)
    except OSError as error:
        raise RolloutError("file-unreadable", path=path, reason=system_reason(error)) from error
    try:
        parsed = parse_json(content)
    except ValueError:
        parsed = None
    if isinstance(parsed, Mapping) and "gens" in parsed:
        samples = [sample for gen in parsed["gens"] for sample in gen.get("samples", ())]
        if not samples:
            raise RolloutError("trace-without-token-ids", path=path)
        yield from enumerate(samples, 1)
        return
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                row = parse_json(line)
            except ValueError as error:
                raise RolloutError(
                    "trace-not-json", path=path, number=number, error=error
                ) from error
            yield number, row if isinstance(row, Mapping) else {}


def _arrays(trace: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The token ids of a trace and its authors, true = senior."""
    try:
        valid_trace = _Trace.model_validate(trace)
    except ValidationError as error:
        raise RolloutError("trace-authors-count-differs") from error
    if len(valid_trace.ids) != len(valid_trace.authors):
        raise RolloutError("trace-authors-count-differs")
    return np.array(valid_trace.ids, dtype=np.int64), np.array(valid_trace.authors, dtype=np.bool_)
