"""Grades of rollouts in a separate file, and which response each belongs to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem_plugin.files import ForeignLineError, parse_json, read_appended, system_reason
from tandem_plugin.grading import OUTCOMES
from tandem_plugin.lab.rollouts.rollout import Rollout, RolloutError

__all__ = [
    "GRADES_ENDING",
    "Grades",
    "grades_beside",
    "input_digest",
    "response_digest",
]

GRADES_ENDING = ".grades.jsonl"


def response_digest(text: str) -> str:
    """Ties a grade to its response: 16 hexadecimal digits of SHA-256 of the text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def input_digest(response: str, gold: object) -> str:
    """Covers everything in a row that decides its grade: 16 hexadecimal digits of SHA-256."""
    text = json.dumps([response, gold, None], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def grades_beside(rollouts: Path) -> Path | None:
    """``NAME.grades.jsonl`` next to ``NAME.jsonl``; None if it does not exist."""
    path = rollouts.with_name(rollouts.stem + GRADES_ENDING)
    return path if path.is_file() else None


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
            raise RolloutError("TP769", path=path, line=error.line, error=error) from error
        except OSError as error:
            raise RolloutError("TP754", path=path, reason=system_reason(error)) from error

    def of(self, row: Rollout) -> Mapping[str, Any] | None:
        """The grade of a response, or None.

        Raises :class:`RolloutError` if the grade belongs to another text.
        """
        problem, sample = row.fields.get("problem"), row.fields.get("sample")
        if type(problem) is not int or type(sample) is not int:
            return None
        record = self._records.get((problem, sample))
        if record is None or "response_sha256" not in record:
            return record
        text = row.fields.get("response")
        if not isinstance(text, str) or response_digest(text) != record["response_sha256"]:
            raise RolloutError("TP770", path=self._path, line=row.line)
        return record

    def _take(self, line: bytes) -> None:
        record = parse_json(line)
        if not isinstance(record, dict) or record.get("outcome") not in OUTCOMES:
            raise ValueError("it has no outcome")
        problem, sample = record.get("problem"), record.get("sample")
        if type(problem) is not int or type(sample) is not int:
            raise ValueError("it does not identify its response")
        self._records[problem, sample] = record
