"""Rollout files: writing and resuming one, the files of a folder, and their tokenizer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.errors import TokenizerError
from tandem_plugin.files import AppendedFile, Longer, is_hub_name, note_of, open_file, read_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.rollouts.grades import is_grades_file
from tandem_plugin.lab.rollouts.rollout import MalformedRow, RolloutError, read_rollouts

__all__ = [
    "RolloutFile",
    "file_step",
    "find_tokenizer",
    "placed_rows",
    "rollout_files",
    "run_file",
]

_FOLDERS = ("tokenizer", "checkpoint")
_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json")


def run_file(path: Path) -> Path:
    """The file with the settings that the rollouts at ``path`` were made with."""
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
    """(problem, sample, row) of every line, except a last one without a newline.

    Raises ValueError for a line that is not a rollout, OSError if the file cannot be read.
    """
    with open_file(path) as lines:
        yield from (_placed_row(line) for line in lines if line.endswith(b"\n"))


def _placed_row(line: bytes) -> tuple[int, int, dict[str, Any]]:
    """(problem, sample, row) of a line; raises ValueError if it is not a rollout."""
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    problem, sample = row.get("problem"), row.get("sample")
    if type(problem) is not int or type(sample) is not int or problem < 0 or sample < 0:
        raise ValueError("it lacks the integers problem and sample")
    return problem, sample, row


def rollout_files(path: Path) -> list[Path]:
    """The file itself, or the ``.jsonl`` files of a folder of dumps, 2 before 10, without grades.

    Raises :class:`RolloutError` if there is none.
    """
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise RolloutError("TP767", path=path)
    found = [file for file in path.iterdir() if file.suffix == ".jsonl" and os.path.isfile(file)]
    kept = (file for file in found if not is_grades_file(file))
    files = sorted(kept, key=lambda file: (len(file.name), file.name))
    if not files:
        raise RolloutError("TP768", path=path)
    return files


def file_step(path: Path) -> int | None:
    """The training step that a dump is named for, as in ``120.jsonl``; None for another name."""
    return int(path.stem) if re.fullmatch("[0-9]{1,9}", path.stem) else None


def find_tokenizer(rollouts: Path) -> str:
    """The tokenizer of a file or folder of rollouts: that of its senior, or the one next to it.

    Raises :class:`TokenizerError` if there is none, and :class:`RolloutError` for a file without
    rollouts, whichever tokenizer it would need.
    """
    _check_first_row(rollouts)
    places, written = [rollouts.parent], [rollouts]
    if os.path.isdir(rollouts):
        places = [rollouts, rollouts.resolve().parent]
        notes = sorted(rollouts.glob("*.run.json"))
        written = [note.with_name(note.name.removesuffix(".run.json")) for note in notes]
    for senior in map(_noted_senior, written):
        if senior is not None:
            return senior
    for folder in (place / name for place in places for name in _FOLDERS):
        if any(os.path.isfile(folder / file) for file in _FILES):
            return str(folder)
    looked = " or ".join(f"{name}/" for name in _FOLDERS)
    raise TokenizerError("TP790", rollouts=rollouts, looked=looked)


def _check_first_row(rollouts: Path) -> None:
    """Raise :class:`RolloutError` unless the first file's first row is a rollout."""
    file = rollout_files(rollouts)[0]
    first = next(read_rollouts(file), None)
    if first is None:
        raise RolloutError("TP791", file=file)
    if isinstance(first, MalformedRow):
        raise RolloutError("TP792", file=file, line=first.line, message=first.message)


def _noted_senior(rollouts: Path) -> str | None:
    """The senior that ``tandem rollout`` noted, unless its folder is gone."""
    try:
        senior = parse_json(read_file(run_file(rollouts)))["senior"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    known = isinstance(senior, str) and (os.path.exists(senior) or is_hub_name(senior))
    return senior if known else None
