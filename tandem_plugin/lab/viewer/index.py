"""Which responses the files of a run hold, and which of them a page shows."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin.errors import ConfigError
from tandem_plugin.lab.rollouts.rollout import MalformedRow, Rollout, read_rollouts
from tandem_plugin.lab.rollouts.rollout_file import file_step
from tandem_plugin.lab.viewer.responses import prompt_of

__all__ = ["Choice", "Listed", "Numbers", "PageIndex", "Unread", "spread"]

_MOST_UNREAD = 50

_BASE = {"step": 6, "problem": 4, "sample": 4}
"""Of how many of each something is shown first; then of twice as many, and so on."""


class Listed(NamedTuple):
    """One response, by where it lies."""

    file: int
    """Its file's place among the files."""
    line: int
    offset: int
    step: int | None
    """The training step, where the row or the name of its dump says one."""
    problem: int
    """Its problem's place among the problems."""
    sample: int
    """The row's own number, or how many responses to its problem at its step came before it."""


@dataclass(slots=True)
class Unread:
    """Lines that cannot be shown: the first of them, and how many there are."""

    lines: list[tuple[str, int, str]] = field(default_factory=list)
    """(file, line, why); the file's name is empty where there is only one."""
    count: int = 0

    def add(self, file: str, line: int, why: str) -> None:
        """Count a line, and keep it where it is among the first."""
        self.count += 1
        if len(self.lines) < _MOST_UNREAD:
            self.lines.append((file, line, why))


@dataclass(slots=True)
class PageIndex:
    """The responses of some files, in the order of files and lines.

    Of each response a few numbers are kept, so that a run of any number of tokens can be listed.
    """

    files: Sequence[Path]
    responses: list[Listed] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """The number that each problem has: the one in its rows, or its place, from 1."""
    unread: Unread = field(default_factory=Unread)
    _problems: dict[tuple[int | None, bytes], int] = field(default_factory=dict)
    _samples: dict[tuple[int | None, int], int] = field(default_factory=dict)

    def read(self, on_read: Callable[[int], None] = lambda count: None) -> None:
        """Read all files. on_read: called with the number of bytes of each line."""
        for number, file in enumerate(self.files):
            step = file_step(file) if len(self.files) > 1 else None
            for row in read_rollouts(file, on_read):
                self._add(number, step, row)

    def name(self, file: int) -> str:
        """How a file is called beside others; empty where it is the only one."""
        return self.files[file].name if len(self.files) > 1 else ""

    def _add(self, file: int, file_step: int | None, row: Rollout | MalformedRow) -> None:
        if isinstance(row, MalformedRow):
            self.unread.add(self.name(file), row.line, row.message)
            return
        if row.authorship is not None and len(row.authorship) != len(row.response_ids):
            why = (
                f"The response has {len(row.response_ids)} tokens, its recorded authorship "
                f"{len(row.authorship)}."
            )
            self.unread.add(self.name(file), row.line, why)
            return
        noted = row.fields.get("step")
        step = noted if type(noted) is int and abs(noted) < 2**53 else file_step
        problem = self._problem(row.fields)
        before = self._samples.get((step, problem), 0)
        self._samples[step, problem] = before + 1
        sample = _number(row.fields.get("sample"))
        sample = before if sample is None else sample
        self.responses.append(Listed(file, row.line, row.offset, step, problem, sample))

    def _problem(self, fields: Mapping[str, Any]) -> int:
        number = _number(fields.get("problem"))
        key = number, _digest(prompt_of(fields))
        if key not in self._problems:
            self._problems[key] = len(self._problems)
            self.numbers.append(len(self._problems) if number is None else number)
        return self._problems[key]


def _number(value: object) -> int | None:
    """A number that a browser can count with."""
    return value if type(value) is int and 0 <= value < 2**53 else None


def _digest(prompt: str | list[Any]) -> bytes:
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers as a user lists them: ``1,50,100-200``."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, option: str, text: str) -> Numbers:
        """option: how it is called, for the :class:`ConfigError` of something else."""
        found = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,15})(?:-([0-9]{1,15}))?\s*", part)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise ConfigError("TP793", option=option, text=text)
            found.append((int(match[1]), int(match[2] or match[1])))
        return cls(tuple(found))

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(low <= number <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a user asked to see; None is everything."""

    steps: Numbers | None = None
    problems: Numbers | None = None
    """By the numbers that problems have."""
    samples: int | None = None
    """The most responses to one problem at one step."""

    def of(self, listed: Iterable[Listed], numbers: Sequence[int]) -> list[Listed]:
        """The responses that were asked for, in the order in which a page takes them in.

        Where the page has no room for all, those that it shows are then spread evenly: over a few
        steps (first, last, and between), problems and samples at first, over twice as many next.
        Problems that come at most steps come first. numbers: of each problem.
        """
        kept = [
            one
            for one in listed
            if (self.steps is None or one.step in self.steps)
            and (self.problems is None or numbers[one.problem] in self.problems)
        ]
        return _evenly(kept, self.samples)


def _evenly(listed: Sequence[Listed], most: int | None) -> list[Listed]:
    """Responses from those that stand for all to those that add the least; ``most`` of a group."""
    steps = sorted({_step(one) for one in listed})
    step_rank = {steps[place]: rank for rank, place in enumerate(spread(len(steps)))}
    problem_rank = _problem_ranks(listed)
    taken: dict[tuple[int, int], int] = {}
    keyed = []
    for place, one in enumerate(listed):
        group = _step(one), one.problem
        rank = taken[group] = taken.get(group, -1) + 1
        if most is None or rank < most:
            ranks = step_rank[group[0]], problem_rank[one.problem], rank
            level = max(_level(r, base) for r, base in zip(ranks, _BASE.values(), strict=True))
            keyed.append((level, ranks[1], ranks[0], rank, place))
    return [listed[place] for *_, place in sorted(keyed)]


def _problem_ranks(listed: Sequence[Listed]) -> dict[int, int]:
    """Each problem's place among those of its steps, those of most steps first."""
    steps: dict[int, set[int]] = {}
    for one in listed:
        steps.setdefault(one.problem, set()).add(_step(one))
    ranks: dict[int, int] = {}
    free: dict[int, int] = {}
    for problem in sorted(steps, key=lambda problem: -len(steps[problem])):
        ranks[problem] = max(free.get(step, 0) for step in steps[problem])
        free.update(dict.fromkeys(steps[problem], ranks[problem] + 1))
    return ranks


def _step(one: Listed) -> int:
    return -1 if one.step is None else one.step


def _level(rank: int, base: int) -> int:
    return (rank // base).bit_length()


def spread(count: int) -> list[int]:
    """0 to count - 1, the ends first, then what lies halfway between those that came before."""
    order = list(dict.fromkeys([0, count - 1])) if count else []
    gaps = deque([(0, count - 1)])
    while gaps:
        low, high = gaps.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return order
