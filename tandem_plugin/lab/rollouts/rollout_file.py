"""Rollout files: writing and resuming one, the files of a folder, their grades and tokenizer."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from tandem_plugin.boundaries.tokenizer_files import READ_ALONE
from tandem_plugin.errors import OutputError, TokenizerError
from tandem_plugin.files import (
    ForeignLineError,
    WholeLines,
    lock_file,
    open_file,
    parse_json,
    read_appended,
    read_file,
    read_json,
    system_reason,
    write_file,
)
from tandem_plugin.files.checkpoints import is_hub_name
from tandem_plugin.grading import OUTCOMES
from tandem_plugin.lab.rollouts.rollout import (
    ROW_DIGEST,
    MalformedRow,
    Rollout,
    RolloutError,
    read_rollouts,
    row_digest,
    text_digest,
    was_edited,
)

logger = logging.getLogger(__name__)

_FOLDERS = ("tokenizer", "checkpoint", "senior")
"""Where a run's tokenizer may lie: the demo's and a recipe's senior have it."""
_MARK = re.compile(r" \([0-9a-f]{16}\)$")
_RUN = "run.json"
"""The note of a recipe's run, which has its model before it has a senior."""
_OF_RUN = "rollouts"
"""In the folder of a run that a recipe or the demo made."""
_GRADES = ".grades.jsonl"
_NO_ROLLOUTS = (_GRADES, ".scores.jsonl")
"""The ends of names of what `tandem eval` writes next to responses."""
_NOTE = ".run.json"
_NOTES_OF_RESPONSES = [
    f"{above}{kind}/*.jsonl{_NOTE}"
    for above in ("", "*/", "*/*/")  # the folder of a senior, of an evaluation, or of several
    for kind in ("solo", "handoff/*/*")
]
"""Where `tandem eval` notes what responses were made with, below the folder that it is given."""
_FILES = (*READ_ALONE, "tokenizer_config.json")


def run_file(path: Path) -> Path:
    """The file with the settings that the rollouts at ``path`` were made with."""
    if not path.name:
        raise RolloutError("rollout-file-name-invalid", path=path)
    return path.with_name(path.name + _NOTE)


RowCheck: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Raises ValueError for a row that is not of this kind of file."""


class RolloutFile:
    """Appends rollouts to those that an earlier run with the same settings wrote.

    Each line is passed to the operating system as it is written, so if this process dies, none is
    lost. A partial last line of a killed process is completed if only its line end is missing, and
    removed otherwise. Raises :class:`OutputError` if the file was made with other settings,
    contains anything else, or is being written by a different process; the file is then left
    unchanged.

    settings: what decides the lines; recorded next to the file. check: raises ValueError for a row
    that the command did not write.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], check: RowCheck = lambda row: None
    ) -> None:
        self.path = path
        self._check = check
        self.done: set[tuple[int, int]] = set()
        """(problem, sample) of the rollouts that are in the file."""
        self._file = self._open()
        try:
            self._lock()
            lines = self._read(settings)
            self._check_settings(settings)
            self._file.truncate(lines.size)  # a process was killed while it wrote what is behind
            if not lines.ends:
                self._write(b"\n")
        except BaseException:
            self._file.close()
            raise

    def append(self, problem: int, sample: int, row: Mapping[str, Any]) -> None:
        """Write one rollout."""
        content = {"problem": problem, "sample": sample, **row}
        line = json.dumps({**content, ROW_DIGEST: row_digest(content)})
        self._write(line.encode() + b"\n")
        self.done.add((problem, sample))

    def __enter__(self) -> RolloutFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _open(self) -> io.FileIO:
        """The file, unbuffered, made where it is missing; writes go to its end."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.exists(self.path):
                open_file(self.path).close()  # nothing else: opening a pipe would wait for a reader
            return self.path.open("ab", buffering=0)
        except OSError as error:
            raise OutputError(
                "file-unwritable", path=self.path, reason=system_reason(error)
            ) from error

    def _lock(self) -> None:
        if not lock_file(self._file, self.path):
            raise OutputError("file-locked", path=self.path)

    def _read(self, settings: Mapping[str, Any]) -> WholeLines:
        """Take in what is there."""

        def take(line: bytes) -> None:
            problem, sample, row = _placed_row(line)
            self._check(row)
            self.done.add((problem, sample))

        try:
            return read_appended(self.path, b'{"problem": ', take)
        except ForeignLineError as error:
            if os.path.exists(run_file(self.path)):
                self._check_settings(settings)  # rows of other settings may well be others
            raise OutputError(
                "rollout-line-invalid", path=self.path, line=error.line, error=error
            ) from error
        except OSError as error:
            raise OutputError(
                "file-unreadable", path=self.path, reason=system_reason(error)
            ) from error

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        note = run_file(self.path)
        if self.path.stat().st_size > 0:
            if not os.path.exists(note):
                raise OutputError("rollout-note-missing", path=self.path, note=note.name)
            noted = _noted(note)
            if noted is None:
                logger.warning(
                    "%s is empty, as after a loss of power. The rollouts are kept: make sure that "
                    "they were made with the options of this command.",
                    note,
                )
            elif self._is_noted(noted, settings):
                return
        write_file(note, json.dumps(settings, indent=2) + "\n")

    def _is_noted(self, noted: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
        """Whether a note has these settings; raises :class:`OutputError` if it has others."""
        settings_read = json.loads(json.dumps(settings))
        for name in [*settings_read, *noted]:
            before, now = noted.get(name), settings_read.get(name)
            if before != now:
                raise OutputError(
                    "rollout-settings-changed", path=self.path, name=name, before=before, now=now
                )
        return bool(noted == settings_read)

    def _write(self, content: bytes) -> None:
        try:
            while content:
                content = content[self._file.write(content) :]
        except OSError as error:
            raise OutputError(
                "file-write-failed", path=self.path, reason=system_reason(error)
            ) from error


def _noted(note: Path) -> dict[str, Any] | None:
    """The noted settings; None if a loss of power left nothing of the note."""
    try:
        content = read_file(note)
        if not content.strip(b"\0"):
            return None
        noted = parse_json(content)
        if not isinstance(noted, dict):
            raise ValueError("it contains no settings")
    except (OSError, ValueError) as error:
        raise OutputError("rollout-note-unreadable", note=note, error=error) from error
    return noted


def placed_rows(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(problem, sample, row) of every line, except blank ones and a last one without a newline.

    Raises ValueError for a line that is not a rollout, OSError if the file cannot be read.
    """
    with open_file(path) as lines:
        yield from (_placed_row(line) for line in lines if line.strip() and line.endswith(b"\n"))


def _placed_row(line: bytes) -> tuple[int, int, dict[str, Any]]:
    """(problem, sample, row) of a line; raises ValueError if it is not a rollout, or was edited."""
    row = parse_json(line)
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    if was_edited(row):
        raise ValueError(f"it was edited: its {ROW_DIGEST} is that of another row")
    row.pop(ROW_DIGEST, None)
    problem, sample = row.get("problem"), row.get("sample")
    if type(problem) is not int or type(sample) is not int or problem < 0 or sample < 0:
        raise ValueError("it lacks the integers problem and sample")
    return problem, sample, row


def rollout_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder, without grades.

    Of a folder of dumps its ``.jsonl`` files, 2 before 10; of a folder without any, such as an
    evaluation's, the responses below it that have a note of what they were made with. The folder of
    a trainer's run stands for its ``rollouts``. Raises :class:`RolloutError` if there is none.
    """
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise RolloutError("path-missing", path=path)
    path = rollouts_folder(path)
    files = [file for file in path.iterdir() if file.suffix == ".jsonl"]
    if not files:
        notes = chain.from_iterable(map(path.glob, _NOTES_OF_RESPONSES))
        files = [note.with_name(note.name.removesuffix(_NOTE)) for note in notes]
    rollout_files = [
        file for file in files if not file.name.endswith(_NO_ROLLOUTS) and file.is_file()
    ]
    if not rollout_files:
        raise RolloutError("folder-without-rollouts", path=path)
    return sorted(rollout_files, key=lambda file: (file.parent, len(file.name), file.name))


def rollouts_folder(path: Path) -> Path:
    """The folder itself, or the ``rollouts`` of a trainer's run; of a file, the folder it is in."""
    if os.path.isfile(path):
        return path.parent
    return path / _OF_RUN if os.path.isdir(path / _OF_RUN) else path


def file_step(path: Path) -> int | None:
    """The training step that a dump is named for, as in ``120.jsonl``; None for any other name."""
    return int(path.stem) if re.fullmatch("[0-9]{1,9}", path.stem) else None


def find_tokenizer(rollouts: Path) -> str:
    """The tokenizer of a file or folder of rollouts: its senior's, or the one next to it.

    A step's dump is one of a folder, next to which the tokenizer lies, or the note of a recipe's
    run. Raises :class:`TokenizerError` if there is none, and :class:`RolloutError` for a file
    without rollouts, whichever tokenizer it would need.
    """
    _check_first_row(rollouts)
    places, written = [rollouts.parent], [rollouts]
    if file_step(rollouts) is not None:
        places.append(rollouts.resolve().parent.parent)
    if os.path.isdir(rollouts):
        places = [rollouts, rollouts.resolve().parent]
        written = rollout_files(rollouts)
    for senior in (_noted_model(run_file(file), "senior") for file in written):
        if senior is not None:
            return senior
    for folder in (place / name for place in places for name in _FOLDERS):
        if any(os.path.isfile(folder / file) for file in _FILES):
            return str(folder)
    for model in (_noted_model(place / _RUN, "model") for place in places):
        if model is not None:
            return model
    looked = " or ".join(f"{name}/" for name in _FOLDERS)
    raise TokenizerError("rollout-tokenizer-missing", rollouts=rollouts, looked=looked)


def _check_first_row(rollouts: Path) -> None:
    """Raise :class:`RolloutError` unless the first file's first row is a rollout."""
    file = rollout_files(rollouts)[0]
    first = next(read_rollouts(file), None)
    if first is None:
        raise RolloutError("rollout-file-empty", file=file)
    if isinstance(first, MalformedRow):
        raise RolloutError(
            "rollout-file-without-rollouts",
            file=file,
            line=first.line,
            message=first.message.rpartition(" [")[0],
        )


def _noted_model(note: Path, name: str) -> str | None:
    """The model that a run noted, without the mark of its files, unless its folder is gone."""
    try:
        model = read_json(note)[name]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if not isinstance(model, str):
        return None
    model = _MARK.sub("", model)
    return model if os.path.exists(model) or is_hub_name(model) else None


def input_digest(response: str, gold: object) -> str:
    """A digest of everything in a row that decides its grade."""
    return text_digest(json.dumps([response, gold, None], sort_keys=True))


def grades_file(rollouts: Path, grader: str = "") -> Path:
    """The file of the grades of ``NAME.jsonl``: ``NAME.grades.jsonl`` next to it.

    Of a grader other than this package's, ``NAME.GRADER.grades.jsonl``.
    """
    return rollouts.with_name(rollouts.stem + (f".{grader}" if grader else "") + _GRADES)


class Grades:
    """The records of ``tandem eval``, by problem and sample.

    Raises :class:`RolloutError` for any other line. A line that is still being written is skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[tuple[int, int], Mapping[str, Any]] = {}
        try:
            read_appended(path, b'{"', self._take)
        except ForeignLineError as error:
            raise RolloutError(
                "grade-line-invalid", path=path, line=error.line, error=error
            ) from error
        except OSError as error:
            raise RolloutError("file-unreadable", path=path, reason=system_reason(error)) from error

    def of(self, row: Rollout) -> Mapping[str, Any] | None:
        """The grade of a response, or None.

        Raises :class:`RolloutError` if the grade belongs to a different text.
        """
        problem, sample = row.fields.get("problem"), row.fields.get("sample")
        if type(problem) is not int or type(sample) is not int:
            return None
        record = self._records.get((problem, sample))
        if record is None or "response_sha256" not in record:
            return record
        text = row.fields.get("response")
        if not isinstance(text, str) or text_digest(text) != record["response_sha256"]:
            raise RolloutError("grade-of-other-response", path=self._path, line=row.line)
        return record

    def _take(self, line: bytes) -> None:
        record = parse_json(line)
        if not isinstance(record, dict) or record.get("outcome") not in OUTCOMES:
            raise ValueError("it has no outcome")
        problem, sample = record.get("problem"), record.get("sample")
        if type(problem) is not int or type(sample) is not int:
            raise ValueError("it does not identify its response")
        self._records[problem, sample] = record
