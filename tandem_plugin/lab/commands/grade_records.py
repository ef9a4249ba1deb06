"""The records that ``tandem grade`` writes: one a line, resumed after a kill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.errors import DataError
from tandem_plugin.files import AppendedFile
from tandem_plugin.files.strict_json import is_number, parse_json
from tandem_plugin.lab.rollouts.grades import input_digest

__all__ = ["GradeRecords"]


class GradeRecords(AppendedFile):
    """Records by the line of what they grade.

    settings: what decides a grade, beside the row itself. Raises :class:`OutputError` for what
    cannot be resumed.
    """

    what, one, begin = "grades", "record of `tandem grade`", b'{"line": '

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._found: dict[int, dict[str, Any]] = {}
        super().__init__(path, settings)

    @property
    def before(self) -> list[dict[str, Any]]:
        """The records that were there already, the last of each line."""
        return list(self._found.values())

    def check(self, rows: Iterable[tuple[int, str, object, str | None]]) -> None:
        """Raise :class:`DataError` unless every record is of a row that is still as it was.

        rows: (line, response, gold, prompt) of the input, in its order.
        """
        left = dict(self._found)
        for number, response, gold, prompt in rows:
            record = left.pop(number, None)
            if record and record["input_sha256"] != input_digest(response, gold, prompt):
                raise DataError(
                    f"Line {number} is not what {str(self.path)!r} has a grade of: its response, "
                    f"gold or prompt was changed. {_REMEDY}"
                )
        if left:
            raise DataError(
                f"{str(self.path)!r} has grades of {len(left):,} lines that are not there any "
                f"more, the first is line {min(left)}. {_REMEDY}"
            )

    def take(self, line: bytes) -> None:
        from tandem_plugin.grading import OUTCOMES

        record = parse_json(line)
        if not (
            isinstance(record, dict)
            and type(record.get("line")) is int
            and record.get("outcome") in OUTCOMES
            and is_number(record.get("milliseconds"))
            and isinstance(record.get("rule"), str)
            and isinstance(record.get("answer", 0), str | None)
            and isinstance(record.get("input_sha256"), str)
        ):
            raise ValueError("it lacks what a record has")
        self._found[record["line"]] = record


_REMEDY = (
    "Rows may only be added at the end between runs: give another --out, or delete it to grade all "
    "rows again."
)
