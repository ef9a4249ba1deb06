"""Problem sets by name, the paper's and GSM8K: their homes, and how many problems they have.

A set is fetched from its home, at a known revision, where that can be reached, or read from the
user's own file. Either way its number of problems must be the known one, and its checksum the one
that was recorded when this user first read it to use it. The problems themselves are no part of
this package.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tandem_plugin.errors import DataError
from tandem_plugin.files import read_file, write_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.data.prepare import checksum
from tandem_plugin.lab.data.problem import BadRow, Problem, ProblemSet
from tandem_plugin.lab.data.records import HubSource, read_hub, read_records
from tandem_plugin.lab.data.rows import given_answer, problems_of

__all__ = ["NAMED_SETS", "NamedSet", "load_named", "record_named"]


@dataclass(frozen=True, slots=True)
class NamedSet:
    """A problem set that has a name of its own here."""

    name: str
    count: int
    """Its problems, without the rows that are left out."""
    homes: tuple[HubSource, ...]
    """On the Hugging Face Hub, joined in this order; none without a public home."""
    about: str
    skips_unanswered: bool = False
    """Whether rows whose answer is blank are left out, even where their solution has a box."""
    evaluate_on: str | None = None
    """The set to evaluate on instead, where this one is the training split of both."""


def _at(revision: str, name: str, config: str | None = None, split: str | None = None) -> HubSource:
    return HubSource(name, config, split, revision)


_AIME24 = _at("83a7f387baaa524a8bda0022eac0541582297103", "math-ai/aime24")
_AIME25 = _at("563bb8404243c5f09de6ec262f2db674fe5bce9b", "math-ai/aime25")
_AIME26 = _at("79037aebdb6580008fb960d17cb21fd3099083e3", "math-ai/aime26")
_AMC23 = _at("80815d37005feb82cd7f8fbc6901d5d3eff43057", "math-ai/amc23")
_MINERVA = _at("ee46ddc498933b1977577953250ca5c66be64f96", "math-ai/minervamath")
_DEEPSCALER = _at(
    "b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29", "agentica-org/DeepScaleR-Preview-Dataset"
)
_GSM8K = _at("740312add88f781978c0658806c59bc2815b9866", "openai/gsm8k", "main", "train")

_SETS = (
    # 40,315 rows, of which six have an empty answer; the paper's authors leave those out.
    NamedSet(
        "deepscaler", 40_309, (_DEEPSCALER,), "DeepScaleR, the training problems",
        skips_unanswered=True,
    ),
    NamedSet("aime24", 30, (_AIME24,), "AIME 2024, I and II"),
    NamedSet("aime25", 30, (_AIME25,), "AIME 2025, I and II"),
    NamedSet("aime26", 30, (_AIME26,), "AIME 2026, I and II"),
    NamedSet("aime24-26", 90, (_AIME24, _AIME25, _AIME26), "AIME 2024 to 2026"),
    NamedSet("amc23", 40, (_AMC23,), "AMC 12 of 2023"),
    NamedSet(
        "amc23-25", 121, (),
        "AMC 10 and 12 of 2023 to 2025, compiled by the paper's authors",
    ),
    NamedSet("minerva", 272, (_MINERVA,), "Minerva Math (OCWCourses)"),
    NamedSet("gsm8k", 7_473, (_GSM8K,), "GSM8K, the training split", evaluate_on="gsm8k-test"),
    NamedSet("gsm8k-test", 1_319, (replace(_GSM8K, split="test"),), "GSM8K, the test split"),
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
    file. Rows that the set is known to leave out are among the ``bad_rows`` of the result. Raises
    :class:`DataError` for an unknown name, a set that cannot be fetched, a wrong number of problems
    or another checksum than the recorded one.
    """
    found = NAMED_SETS.get(name)
    if found is None:
        raise DataError("TP701", name=name, known=", ".join(NAMED_SETS))
    if files:
        parts = [_problems(read_records(path), path.stem, found, bad_rows) for path in files]
    elif not found.homes:
        raise DataError("TP702", name=name, about=found.about, count=found.count)
    else:
        parts = [_fetch(home, found, bad_rows) for home in found.homes]
    problems = _joined(parts)
    joined = ProblemSet(name, problems, tuple(bad for part in parts for bad in part.bad_rows))
    if len(joined) != found.count:
        where = "the given file" if files else ", ".join(map(_described, found.homes))
        left_out = f", and {len(joined.bad_rows):,} rows left out" if joined.bad_rows else ""
        raise DataError(
            "TP703", name=name, count=found.count, where=where, rows=len(joined), left_out=left_out
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


def _fetch(home: HubSource, found: NamedSet, bad_rows: Literal["stop", "skip"]) -> ProblemSet:
    try:
        records = read_hub(home)
    except DataError as error:
        raise DataError("TP704", name=found.name, error=error, home=home.name) from error
    return _problems(records, _described(home), found, bad_rows)


def _described(home: HubSource) -> str:
    return f"{home} at revision {home.revision[:7]}" if home.revision else str(home)


def _problems(
    records: Iterable[tuple[int, Any]],
    name: str,
    found: NamedSet,
    bad_rows: Literal["stop", "skip"],
) -> ProblemSet:
    """The problems of records; those that the set leaves out are bad rows, whatever bad_rows is."""
    left_out: list[BadRow] = []

    def kept() -> Iterator[tuple[int, Any]]:
        for row, record in records:
            is_record = isinstance(record, Mapping)
            if found.skips_unanswered and is_record and given_answer(record) is None:
                left_out.append(BadRow(row, "It has no answer."))
            else:
                yield row, record

    read = problems_of(kept(), name, bad_rows)
    bad = sorted((*read.bad_rows, *left_out), key=lambda one: one.row)
    return ProblemSet(name, read.problems, tuple(bad))


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
        raise DataError("TP705", name=name, now=now[:12], file=file, before=before[:12])


def _recorded(file: Path) -> dict[str, str]:
    """Checksums by name; none where nothing was recorded yet."""
    try:
        known = parse_json(read_file(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError("TP706", file=file, error=error) from error
    if isinstance(known, dict) and all(isinstance(one, str) for one in known.values()):
        return known
    raise DataError("TP707", file=file)


def _cache() -> Path:
    return Path(os.environ.get("TANDEM_DATA", Path.home() / ".cache" / "tandem" / "data"))
