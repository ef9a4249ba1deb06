"""The problem sets of the paper, by name: where they are at home, and how many problems they have.

A set is fetched from its home where that can be reached, or read from the user's own file. Either
way its number of problems must be the known one, and its checksum the one that was recorded when
this user first read it to use it. The problems themselves are no part of this package.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tandem_plugin.data.prepare import checksum
from tandem_plugin.data.problem import Problem, ProblemSet
from tandem_plugin.data.rows import read_problems
from tandem_plugin.errors import DataError
from tandem_plugin.files import read_file, write_file
from tandem_plugin.files.strict_json import parse_json

__all__ = ["NAMED_SETS", "NamedSet", "load_named", "record_named"]


@dataclass(frozen=True, slots=True)
class NamedSet:
    """A problem set that the paper trains or evaluates on."""

    name: str
    count: int
    homes: tuple[str, ...]
    """owner/name on the Hugging Face Hub, joined in this order; none without a public home."""
    about: str
    slack: int = 0
    """How many more or fewer problems are right, where the paper gives a round number."""


_SETS = (
    NamedSet(
        "deepscaler", 40_000, ("agentica-org/DeepScaleR-Preview-Dataset",),
        "DeepScaleR, the training problems", 1_000,
    ),
    NamedSet("aime24", 30, ("math-ai/aime24",), "AIME 2024, I and II"),
    NamedSet("aime25", 30, ("math-ai/aime25",), "AIME 2025, I and II"),
    NamedSet("aime26", 30, ("math-ai/aime26",), "AIME 2026, I and II"),
    NamedSet(
        "aime24-26", 90, ("math-ai/aime24", "math-ai/aime25", "math-ai/aime26"),
        "AIME 2024 to 2026",
    ),
    NamedSet("amc23", 40, ("math-ai/amc23",), "AMC 12 of 2023"),
    NamedSet(
        "amc23-25", 121, (),
        "AMC 10 and 12 of 2023 to 2025, compiled by the paper's authors",
    ),
    NamedSet("minerva", 272, ("math-ai/minervamath",), "Minerva Math (OCWCourses)"),
)  # fmt: skip

_CHECKSUMS = "checksums.json"

NAMED_SETS: dict[str, NamedSet] = {one.name: one for one in _SETS}


def load_named(
    name: str,
    files: tuple[Path, ...] = (),
    bad_rows: Literal["stop", "skip"] = "stop",
    cache: Path | None = None,
    record: bool = True,
) -> ProblemSet:
    """A named set, from its home or from the user's files, joined in their order.

    cache: where checksums are recorded; ``$TANDEM_DATA``, or ``~/.cache/tandem/data``. record:
    whether to record this one where none is yet; not for a mere look, which may be at the wrong
    file. Raises :class:`DataError` for an unknown name, a set that is not to be had, a wrong number
    of problems or another checksum than the recorded one.
    """
    found = NAMED_SETS.get(name)
    if found is None:
        raise DataError(f"There is no set {name!r}: give one of {', '.join(NAMED_SETS)}.")
    if files:
        parts = [read_problems(path, bad_rows) for path in files]
    elif not found.homes:
        raise DataError(
            f"{name} ({found.about}) has no public home to fetch it from: give its file with "
            f"--file, with {found.count} problems in the fields problem and answer."
        )
    else:
        parts = [_fetch(home, found, bad_rows) for home in found.homes]
    problems = _joined(parts)
    joined = ProblemSet(name, problems, tuple(bad for part in parts for bad in part.bad_rows))
    if abs(len(joined) - found.count) > found.slack:
        about = "about " if found.slack else ""
        where = "the given file" if files else ", ".join(found.homes)
        raise DataError(
            f"{name} should have {about}{found.count:,} problems, but {where} has {len(joined):,} "
            f"(and {len(joined.bad_rows)} rows that are none): this is another set, or part of it. "
            "Give the whole set, or read this one under a name of its own, by its path."
        )
    _check_recorded(name, joined, (cache or _cache()) / _CHECKSUMS)
    if record:
        record_named(joined, cache)
    return joined


def record_named(problems: ProblemSet, cache: Path | None = None) -> None:
    """Hold a named set to what it is now: its checksum is recorded, unless one is already."""
    file = (cache or _cache()) / _CHECKSUMS
    known = _recorded(file)
    if problems.name not in known:
        now = checksum(problems.problems)
        write_file(file, json.dumps({**known, problems.name: now}, indent=2) + "\n")


def _fetch(home: str, found: NamedSet, bad_rows: Literal["stop", "skip"]) -> ProblemSet:
    try:
        return read_problems(f"hf://{home}", bad_rows)
    except DataError as error:
        raise DataError(
            f"{found.name} could not be fetched: {error} Bring its file from "
            f"https://huggingface.co/datasets/{home} as .jsonl, .json or .parquet, and give it "
            "with --file."
        ) from error


def _joined(parts: list[ProblemSet]) -> tuple[Problem, ...]:
    """Numbered through where there are several parts."""
    if len(parts) == 1:
        return parts[0].problems
    problems = [problem for part in parts for problem in part.problems]
    return tuple(replace(problem, row=row) for row, problem in enumerate(problems, 1))


def _check_recorded(name: str, problems: ProblemSet, file: Path) -> None:
    """The checksum that was recorded holds for all later readings."""
    before = _recorded(file).get(name)
    now = checksum(problems.problems)
    if before is not None and before != now:
        raise DataError(
            f"{name} is not the set that was read before: its checksum is {now[:12]}, recorded in "
            f"{str(file)!r} is {before[:12]}. Remove that line if the new one is meant."
        )


def _recorded(file: Path) -> dict[str, str]:
    """Checksums by name; none where nothing was recorded yet."""
    try:
        known = parse_json(read_file(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"The record of checksums {str(file)!r} cannot be read: {error}. Mend or remove it."
        ) from error
    if isinstance(known, dict) and all(isinstance(one, str) for one in known.values()):
        return known
    raise DataError(f"{str(file)!r} is no record of checksums: mend or remove it.")


def _cache() -> Path:
    return Path(os.environ.get("TANDEM_DATA", Path.home() / ".cache" / "tandem" / "data"))
