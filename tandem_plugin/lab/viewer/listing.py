"""What the files of a run hold: each response's place, step, problem and sample, and no text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin.lab.rollouts.rollout import MalformedRow, Rollout, read_rollouts
from tandem_plugin.lab.rollouts.rollout_file import file_step

__all__ = ["Listed", "PageIndex", "Unread", "prompt_of"]

_PROMPTS = ("prompt", "input", "question", "problem")
_MOST_UNREAD = 50


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
        said = row.fields.get("step")
        step = said if type(said) is int and abs(said) < 2**53 else file_step
        problem = self._problem(row.fields)
        before = self._samples.get((step, problem), 0)
        self._samples[step, problem] = before + 1
        said = row.fields.get("sample")
        sample = said if type(said) is int and 0 <= said < 2**53 else before
        self.responses.append(Listed(file, row.line, row.offset, step, problem, sample))

    def _problem(self, fields: Mapping[str, Any]) -> int:
        said = fields.get("problem")
        number = said if type(said) is int and 0 <= said < 2**53 else None
        key = number, _digest(prompt_of(fields))
        if key not in self._problems:
            self._problems[key] = len(self._problems)
            self.numbers.append(len(self._problems) if number is None else number)
        return self._problems[key]


def prompt_of(fields: Mapping[str, Any]) -> str | list[Any]:
    """What a response answers: a text, or the turns of a chat; empty where the row does not say."""
    for name in _PROMPTS:
        value = fields.get(name)
        if isinstance(value, (str, list)):
            return value
    return ""


def _digest(prompt: str | list[Any]) -> bytes:
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
