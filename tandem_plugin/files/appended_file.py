"""A file of lines that a command appends to and resumes, with a note of its settings."""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, TypeVar

from tandem_plugin.errors import OutputError
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.files.user_files import (
    open_file,
    read_file,
    system_reason,
    write_file,
)

__all__ = ["AppendedFile", "ForeignLineError", "Longer", "WholeLines", "note_of", "read_appended"]

Self = TypeVar("Self", bound="AppendedFile")

Longer = Callable[[Any], None]
"""Raises a tandem error unless a recorded setting is the beginning of the given one."""


def note_of(path: Path) -> Path:
    """The path of the note that records the settings of the lines at ``path``."""
    return path.with_name(path.name + ".run.json")


class AppendedFile:
    """Appends lines to a file, after those that an earlier run with the same settings wrote.

    Each line is passed to the operating system as it is written, so if this process dies, none is
    lost. A partial last line of a killed process is completed if only its line end is missing, and
    removed otherwise. Raises :class:`OutputError` if the file was made with other settings,
    contains anything else, or is being written by another process; the file is then left unchanged.

    settings: what decides the lines; recorded next to the file. longer: for settings that may grow
    between runs, whether the recorded value is the beginning of the given one.
    """

    what: ClassVar[str] = "lines"
    """The lines' name in errors."""
    one: ClassVar[str] = "line of the command"
    """One line's name in errors."""
    begin: ClassVar[bytes] = b"{"
    """The beginning of every line."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        longer: Mapping[str, Longer] | None = None,
    ) -> None:
        self.path = path
        self._file = self._open()
        try:
            self._lock()
            whole = self._read()
            self._check_settings(settings, longer or {})
            self._file.truncate(whole.size)  # a process was killed while it wrote the rest
            if not whole.ends:
                self._write(b"\n")
        except BaseException:
            self._file.close()
            raise

    def take(self, line: bytes) -> None:
        """Accept an existing line; raises ValueError if the command did not write it."""
        raise NotImplementedError

    def write_line(self, row: Mapping[str, Any]) -> None:
        """Write one line."""
        self._write(json.dumps(row).encode() + b"\n")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _open(self) -> io.FileIO:
        """The file, unbuffered, created if missing; writes go to its end."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("ab", buffering=0)
        except OSError as error:
            raise OutputError("TP751", path=self.path, reason=system_reason(error)) from error

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OutputError("TP752", path=self.path) from error

    def _read(self) -> Any:
        """Read the existing lines; returns the complete ones."""
        try:
            return read_appended(self.path, self.begin, self.take)
        except ForeignLineError as error:
            raise OutputError(
                "TP753", path=self.path, line=error.line, one=self.one, error=error
            ) from error
        except OSError as error:
            raise OutputError("TP754", path=self.path, reason=system_reason(error)) from error

    def _check_settings(self, settings: Mapping[str, Any], longer: Mapping[str, Longer]) -> None:
        note = note_of(self.path)
        given = json.loads(json.dumps(settings))
        if self.path.stat().st_size > 0:
            if not os.path.exists(note):
                raise OutputError("TP755", what=self.what, path=self.path, note=note.name)
            noted = self._noted(note)
            self._compare(noted, given, longer)
            if noted == given:
                return
        write_file(note, json.dumps(settings, indent=2) + "\n")

    def _compare(
        self, noted: dict[str, Any], given: dict[str, Any], longer: Mapping[str, Longer]
    ) -> None:
        for name in [*given, *noted]:
            before, now = noted.get(name), given.get(name)
            if before == now:
                continue
            if name in longer:
                longer[name](before)
                continue
            raise OutputError("TP756", path=self.path, name=name, before=before, now=now)

    def _noted(self, note: Path) -> dict[str, Any]:
        try:
            noted = parse_json(read_file(note))
        except (OSError, ValueError) as error:
            raise OutputError("TP757", note=note, error=error, what=self.what) from error
        if not isinstance(noted, dict):
            raise OutputError("TP757", note=note, error="it contains no settings", what=self.what)
        return noted

    def _write(self, content: bytes) -> None:
        try:
            while content:
                content = content[self._file.write(content) :]
        except OSError as error:
            raise OutputError("TP759", path=self.path, reason=system_reason(error)) from error


class ForeignLineError(ValueError):
    """A line that the command did not write."""

    def __init__(self, line: int, reason: ValueError) -> None:
        super().__init__(str(reason))
        self.line = line


class WholeLines(NamedTuple):
    """The complete lines of a file; the rest is an interrupted line."""

    size: int
    """Bytes of whole lines."""
    ends: bool
    """False if the last of them only lacks its line end."""


def read_appended(path: Path, begin: bytes, take: Callable[[bytes], None]) -> WholeLines:
    """Pass every line of a file to ``take``, except blank ones.

    begin: how every line begins. take: raises ValueError for a line that the command did not write.
    The last line may lack its end: it counts if it can be accepted, and is torn if it cannot but
    begins like the others. Raises :class:`ForeignLineError` for any other line, so nothing else is
    ever removed, and OSError if the file cannot be read.
    """
    whole = 0
    with open_file(path) as lines:
        for number, line in enumerate(lines, 1):
            ends = line.endswith(b"\n")
            try:
                if line.strip():
                    take(line)
            except ValueError as error:
                if ends or not begin.startswith(line[: len(begin)]):
                    raise ForeignLineError(number, error) from error
                return WholeLines(whole, True)
            whole += len(line)
            if not ends:
                return WholeLines(whole, False)
    return WholeLines(whole, True)
