"""A rollout file while it is being written: whole lines, none lost, none repeated."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.files import AppendedFile, Longer, note_of, open_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.rollouts.grades import is_grades_file
from tandem_plugin.lab.rollouts.rollout import RolloutError

__all__ = ["RolloutFile", "file_step", "placed_rows", "rollout_files", "run_file"]


def run_file(path: Path) -> Path:
    """Where the settings are noted that the rollouts at ``path`` were made with."""
    if not path.name:
        raise RolloutError("TP789", path=path)
    return note_of(path)


class RolloutFile(AppendedFile):
    """Rollouts by problem and sample. :class:`OutputError` for a file that cannot be resumed."""

    what, one, begin = "rollouts", "rollout", b'{"problem": '

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        longer: Mapping[str, Longer] | None = None,
    ) -> None:
        self.done: set[tuple[int, int]] = set()
        """(problem, sample) of the rollouts that are in the file."""
        super().__init__(path, settings, longer)

    def append(self, problem: int, sample: int, row: Mapping[str, Any]) -> None:
        """Write one rollout."""
        self.write_line({"problem": problem, "sample": sample, **row})
        self.done.add((problem, sample))

    def take(self, line: bytes) -> None:
        problem, sample, _ = _placed_row(line)
        self.done.add((problem, sample))


def placed_rows(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(problem, sample, row) of every line, but for a last one that has no end yet.

    Raises ValueError for a line that is no rollout, and OSError where the file cannot be read.
    """
    with open_file(path) as lines:
        yield from (_placed_row(line) for line in lines if line.endswith(b"\n"))


def _placed_row(line: bytes) -> tuple[int, int, dict[str, Any]]:
    """(problem, sample, row) of a line; raises ValueError where it is no rollout.

    A part of a JSON object is never one itself, so a line that can be read is whole.
    """
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    problem, sample = row.get("problem"), row.get("sample")
    if type(problem) is not int or type(sample) is not int or problem < 0 or sample < 0:
        raise ValueError("it lacks the integers problem and sample")
    return problem, sample, row


def rollout_files(path: Path) -> list[Path]:
    """The file itself, or the ``.jsonl`` files of a folder of dumps, 2 before 10, without grades.

    Raises :class:`RolloutError` where there is none.
    """
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise RolloutError("TP767", path=path)
    found = [file for file in path.iterdir() if file.suffix == ".jsonl" and os.path.isfile(file)]
    files = sorted((file for file in found if not is_grades_file(file)), key=_in_order)
    if not files:
        raise RolloutError("TP768", path=path)
    return files


def file_step(path: Path) -> int | None:
    """The training step that a dump is named for, as in ``120.jsonl``; None for another name."""
    return int(path.stem) if re.fullmatch("[0-9]{1,9}", path.stem) else None


def _in_order(path: Path) -> list[tuple[int, str]]:
    parts = re.findall("[0-9]+|[^0-9]+", path.name)
    return [(int(part[:18]), "") if part[0].isdecimal() else (-1, part) for part in parts]
