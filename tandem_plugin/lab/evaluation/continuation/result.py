"""What one senior's responses and one junior's continuations of them came to, as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import read_file
from tandem_plugin.files.strict_json import is_number, parse_json
from tandem_plugin.lab.evaluation.results import versions, write_json

__all__ = ["RESULT", "Continuation", "Outcome", "read_continuation", "write_continuation"]

RESULT = "continuation.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One place: how far the models are apart there, and how often the junior got it right."""

    problem: int
    sample: int
    position: int
    divergence: float
    """KL(senior || junior) of the next token, in nats."""
    correct: int
    """Of the run's continuations from there."""

    @classmethod
    def of(cls, row: Any, continuations: int) -> Outcome:
        """From a list of a file; raises ValueError for one that is none."""
        whole = isinstance(row, list) and len(row) == 5
        if not whole or any(type(n) is not int or n < 0 for n in (*row[:3], row[4])):
            raise ValueError(f"{row!r} is no place with its outcome")
        if not is_number(row[3]) or row[3] < 0 or row[4] > continuations:
            raise ValueError(f"{row!r} has a divergence or a count that cannot be")
        return cls(row[0], row[1], row[2], float(row[3]), row[4])

    def row(self) -> list[float]:
        """The list that :meth:`of` reads."""
        return [self.problem, self.sample, self.position, self.divergence, self.correct]


@dataclass(frozen=True, slots=True)
class Continuation:
    """All places of a senior's responses, benchmark by benchmark."""

    senior: str
    junior: str
    continuations: int
    """From each place."""
    settings: Mapping[str, Any]
    """All that must be equal for two to be compared: not the senior."""
    outcomes: Mapping[str, Sequence[Outcome]]


def write_continuation(
    folder: Path, senior: Mapping[str, str], junior: Mapping[str, str], found: Continuation
) -> Path:
    """Write it; senior, junior: what checkpoints say of themselves. Returns the file."""
    path = folder / RESULT
    content = {
        "format": _FORMAT,
        "senior": senior,
        "junior": junior,
        "continuations": found.continuations,
        "settings": found.settings,
        "places": {name: [one.row() for one in rows] for name, rows in found.outcomes.items()},
        "versions": versions(),
    }
    write_json(path, content)
    return path


def read_continuation(path: Path) -> Continuation:
    """What :func:`write_continuation` wrote; :class:`EvaluationError` for another file."""
    try:
        content = parse_json(read_file(path))
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, and this version reads 1")
        continuations = content["continuations"]
        if type(continuations) is not int or continuations < 1:
            raise ValueError(f"it has {continuations!r} continuations of each place")
        return Continuation(
            str(content["senior"]["name"]),
            str(content["junior"]["name"]),
            continuations,
            json.loads(json.dumps(content["settings"])),
            {
                str(name): [Outcome.of(row, continuations) for row in rows]
                for name, rows in content["places"].items()
            },
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvaluationError(
            f"The result {str(path)!r} cannot be read ({type(error).__name__}: {error}): run "
            "`tandem eval continuation` again."
        ) from error
