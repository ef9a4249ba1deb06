"""The records that ``tandem grade`` writes: one a line, gone on with after a kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tandem_plugin.errors import OutputError
from tandem_plugin.files import open_file
from tandem_plugin.files.strict_json import is_number, parse_json

__all__ = ["GradeRecords"]

_BEGIN = b'{"line": '
"""How every record begins."""


class GradeRecords:
    """Appends records to a file, after those that an earlier run wrote.

    What a killed run left of its last line is cut off. Raises :class:`OutputError` where the file
    holds anything but records, which is then left as it is, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.before: list[dict[str, Any]] = []
        """The records that are there already, the last of each line."""
        whole = self._read()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            if self._file.tell() > whole:
                self._file.truncate(whole)
        except OSError as error:
            raise self._unwritable(error) from error

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record; it is with the operating system after the next :meth:`flush`."""
        try:
            self._file.write(json.dumps(record).encode() + b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def flush(self) -> None:
        """Hand over to the operating system what was appended."""
        try:
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> GradeRecords:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def _read(self) -> int:
        """Take in what is there; returns how many bytes of it are whole lines."""
        whole = 0
        found: dict[int, dict[str, Any]] = {}
        try:
            with open_file(self._path) as lines:
                for number, line in enumerate(lines, 1):
                    if not line.endswith(b"\n"):
                        self._check_started(line, number)
                        break
                    if line.strip():
                        record = self._record(line, number)
                        found[record["line"]] = record
                    whole += len(line)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise OutputError(
                f"{str(self._path)!r} cannot be read: {error.strerror or error}."
            ) from error
        self.before = list(found.values())
        return whole

    def _record(self, line: bytes, number: int) -> dict[str, Any]:
        from tandem_plugin.grading import OUTCOMES

        try:
            record = parse_json(line)
        except ValueError:
            record = None
        is_one = (
            isinstance(record, dict)
            and type(record.get("line")) is int
            and record.get("outcome") in OUTCOMES
            and is_number(record.get("milliseconds"))
            and isinstance(record.get("rule"), str)
            and isinstance(record.get("answer", 0), str | None)
        )
        if not is_one or not isinstance(record, dict):
            raise self._foreign(number)
        return record

    def _check_started(self, line: bytes, number: int) -> None:
        """Raise unless a torn line begins as a record does: nothing else is ever cut off."""
        if not _BEGIN.startswith(line[: len(_BEGIN)]):
            raise self._foreign(number)

    def _foreign(self, number: int) -> OutputError:
        return OutputError(
            f"{str(self._path)!r}, line {number} is no record of `tandem grade`: give another "
            "--out."
        )

    def _unwritable(self, error: OSError) -> OutputError:
        return OutputError(
            f"{str(self._path)!r} cannot be written: {error.strerror or error}. What is there "
            "stays; the same command goes on from it."
        )
