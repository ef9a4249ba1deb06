"""A file of rollouts while it is being written: each line whole, none lost, none twice."""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tandem_plugin.files import (
    ForeignLineError,
    open_file,
    read_appended,
    read_file,
    told,
    write_file,
)
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.rollouts.rollout import RolloutError, short

__all__ = ["RolloutFile", "placed_rows", "run_file"]

_ANEW = "Move it away with its rollouts, or give another --out."

_BEGIN = b'{"problem": '
"""How every line begins."""


def run_file(path: Path) -> Path:
    """Where the settings are noted that the rollouts at ``path`` were made with."""
    if not path.name:
        raise RolloutError(f"{str(path)!r} is no name of a file of rollouts: give one with --out.")
    return path.with_name(path.name + ".run.json")


class RolloutFile:
    """Appends rollouts to a file, and goes on with one that was begun with the same settings.

    A line is with the operating system when :meth:`append` returns, so that the end of this process
    loses none. What a killed process left of its last line is completed where only the line's end
    is missing, and cut off otherwise. Raises :class:`RolloutError` when the file was made with
    other settings, holds anything else, or is being written by another process.

    settings: what decides the responses; noted beside the file.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._file = _open(path)
        try:
            self._lock()
            self.done: set[tuple[int, int]] = set()
            """(problem, sample) of the rollouts that are in the file."""
            self._check_settings(settings)
            self._read()
        except BaseException:
            self._file.close()
            raise

    def append(self, problem: int, sample: int, row: Mapping[str, Any]) -> None:
        """Write one rollout."""
        line = json.dumps({"problem": problem, "sample": sample, **row}).encode() + b"\n"
        self._write(line)
        self.done.add((problem, sample))

    def __enter__(self) -> RolloutFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RolloutError(
                f"Another process is writing {str(self._path)!r}: wait for it, or give another "
                "--out."
            ) from error

    def _check_settings(self, settings: Mapping[str, Any]) -> None:
        note = run_file(self._path)
        has_rows = self._path.stat().st_size > 0
        if not os.path.exists(note):
            if has_rows:
                raise RolloutError(
                    f"There are rollouts in {str(self._path)!r}, but no {note.name} beside them "
                    "that says what they were made with: give another --out."
                )
        elif has_rows:
            self._compare(_noted(note), json.loads(json.dumps(settings)))
            return
        write_file(note, json.dumps(settings, indent=2) + "\n")

    def _compare(self, noted: dict[str, Any], settings: dict[str, Any]) -> None:
        for name in [*settings, *noted]:
            if noted.get(name) != settings.get(name):
                raise RolloutError(
                    f"{str(self._path)!r} was made with {name}={short(noted.get(name))}; now it is "
                    f"{short(settings.get(name))}. Give the same settings to go on, or another "
                    "--out."
                )

    def _read(self) -> None:
        try:
            whole = read_appended(self._path, _BEGIN, self._take)
        except ForeignLineError as error:
            raise RolloutError(
                f"{str(self._path)!r}, line {error.line} is no rollout ({error}): mend or remove "
                "the line, or give another --out."
            ) from error
        self._file.truncate(whole.size)  # a process was killed while it wrote what is behind
        if not whole.ends:
            self._write(b"\n")

    def _take(self, line: bytes) -> None:
        problem, sample, _ = _placed_row(line)
        self.done.add((problem, sample))

    def _write(self, content: bytes) -> None:
        try:
            while content:
                content = content[self._file.write(content) :]
        except OSError as error:
            raise RolloutError(
                f"{str(self._path)!r} cannot be written: {told(error)} What is there stays: run "
                "the same command again, and it goes on from there."
            ) from error


def _open(path: Path) -> io.FileIO:
    """The file, unbuffered, made where it is missing; writes go to its end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab", buffering=0)
    except OSError as error:
        raise RolloutError(f"{str(path)!r} cannot be written: {told(error)}") from error


def _noted(note: Path) -> dict[str, Any]:
    try:
        noted = parse_json(read_file(note))
    except (OSError, ValueError) as error:
        raise RolloutError(f"{str(note)!r} cannot be read: {error}. {_ANEW}") from error
    if not isinstance(noted, dict):
        raise RolloutError(f"{str(note)!r} holds no settings. {_ANEW}")
    return noted


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
        raise ValueError("it has no whole numbers problem and sample")
    return problem, sample, row
