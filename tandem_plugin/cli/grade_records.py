"""The records that ``tandem grade`` writes: one a line, gone on with after a kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tandem_plugin.errors import OutputError
from tandem_plugin.files import ForeignLineError, WholeLines, read_appended, told
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
        self._found: dict[int, dict[str, Any]] = {}
        whole = self._read()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            if self._file.tell() > whole.size:
                self._file.truncate(whole.size)
            if not whole.ends:
                self._file.write(b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    @property
    def before(self) -> list[dict[str, Any]]:
        """The records that were there already, the last of each line."""
        return list(self._found.values())

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

    def _read(self) -> WholeLines:
        """Take in what is there."""
        try:
            return read_appended(self._path, _BEGIN, self._take)
        except FileNotFoundError:
            return WholeLines(0, True)
        except ForeignLineError as error:
            raise OutputError(
                f"{str(self._path)!r}, line {error.line} is no record of `tandem grade`: give "
                "another --out."
            ) from error
        except OSError as error:
            raise OutputError(f"{str(self._path)!r} cannot be read: {told(error)}") from error

    def _take(self, line: bytes) -> None:
        from tandem_plugin.grading import OUTCOMES

        record = parse_json(line)
        if not (
            isinstance(record, dict)
            and type(record.get("line")) is int
            and record.get("outcome") in OUTCOMES
            and is_number(record.get("milliseconds"))
            and isinstance(record.get("rule"), str)
            and isinstance(record.get("answer", 0), str | None)
            and isinstance(record.get("response_sha256"), str)
        ):
            raise ValueError("it is no record")
        self._found[record["line"]] = record

    def _unwritable(self, error: OSError) -> OutputError:
        return OutputError(
            f"{str(self._path)!r} cannot be written: {told(error)} What is there stays: run the "
            "same command again, and it goes on from there."
        )
