"""The responses in the files of a run, and the order in which a page includes them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin.lab.rollouts.rollout import MalformedRow, Rollout, read_rollouts
from tandem_plugin.lab.rollouts.rollout_file import file_step
from tandem_plugin.lab.viewer.responses import prompt_of

__all__ = ["Listed", "PageIndex"]


class Listed(NamedTuple):
    """The location of one response."""

    file: int
    """The index of its file."""
    line: int
    offset: int
    step: int | None
    """The training step, if the row or its dump's name gives one."""
    problem: int
    """The index of its problem."""
    sample: int
    """The row's own number, or the number of earlier responses to its problem at its step."""


@dataclass(slots=True)
class PageIndex:
    """The responses of some files, in the order of files and lines.

    It keeps a few numbers per response, so the size of a run does not matter.
    """

    files: Sequence[Path]
    responses: list[Listed] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """The number of each problem: the one in its rows, or its place, from 1."""
    unread: list[tuple[str, int, str]] = field(default_factory=list)
    """(file, line, reason) of lines that cannot be shown; the name of a single file is empty."""
    _problems: dict[tuple[int | None, int], int] = field(default_factory=dict)
    _samples: dict[tuple[int | None, int], int] = field(default_factory=dict)

    def read(self, on_read: Callable[[int], None] = lambda count: None) -> None:
        """Read all files. on_read: called with the number of bytes of each line."""
        for number, file in enumerate(self.files):
            step = file_step(file) if len(self.files) > 1 else None
            for row in read_rollouts(file, on_read):
                self._add(number, step, row)

    def leave_out(self, file: int, line: int, reason: str) -> None:
        """Record a line that cannot be shown."""
        name = self.files[file].name if len(self.files) > 1 else ""
        self.unread.append((name, line, reason))

    def _add(self, file: int, file_step: int | None, row: Rollout | MalformedRow) -> None:
        if isinstance(row, MalformedRow):
            self.leave_out(file, row.line, row.message)
            return
        if row.authorship is not None and len(row.authorship) != len(row.response_ids):
            why = (
                f"The response has {len(row.response_ids)} tokens, its recorded authorship "
                f"{len(row.authorship)}."
            )
            self.leave_out(file, row.line, why)
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
        prompt = prompt_of(fields)
        key = number, hash(prompt if isinstance(prompt, str) else json.dumps(prompt))
        if key not in self._problems:
            self._problems[key] = len(self._problems)
            self.numbers.append(len(self._problems) if number is None else number)
        return self._problems[key]

    def shuffled(self) -> list[Listed]:
        """The responses in the order in which a page includes them.

        A page without room for all shows random problems, the same in every run.
        """
        ranks = list(range(len(self.numbers)))
        random.Random(0).shuffle(ranks)
        return sorted(self.responses, key=lambda one: ranks[one.problem])


def _number(value: object) -> int | None:
    """A number that is exact in JavaScript, or None."""
    return value if type(value) is int and 0 <= value < 2**53 else None
