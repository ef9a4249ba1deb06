"""The one way to read problems: from a file, the Hub, a named set or a generated task.

A source has records, a record becomes a row (:mod:`tandem_plugin.lab.data.layouts`), and a row a
problem with its golds (:mod:`tandem_plugin.lab.data.rows`).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NoReturn

from tandem_plugin.errors import DataError, shown
from tandem_plugin.files import open_file
from tandem_plugin.grading.golds import answer_of
from tandem_plugin.lab.data.generated import PREFIX, read_generated
from tandem_plugin.lab.data.layouts import Layout, LayoutError
from tandem_plugin.lab.data.named import NAMED_SETS, NamedSet, is_named
from tandem_plugin.lab.data.problem import BadRow, Origin, Problem, ProblemSet
from tandem_plugin.lab.data.records import (
    HubSource,
    is_hub_source,
    not_utf8,
    read_hub,
    read_records,
)
from tandem_plugin.lab.data.rows import NeedsAnswer, RowError, problem_of

_MOST_FIELDS = 20
"""Of an example row in a message."""
_KNOWN = Layout()


def read_problems(
    source: str | Path,
    bad_rows: Literal["stop", "skip"] = "stop",
    golds: NeedsAnswer = "required",
    layout: Layout = _KNOWN,
    files: Sequence[Path] = (),
) -> ProblemSet:
    """The problems of a source, and where they are from.

    source: a file, ``owner/name[:config][#split]`` on the Hub, the name of a set, or a task as
    :func:`read_generated` takes it. bad_rows, golds: see :func:`problems_of`. layout: how its
    records become rows. files: the user's own files of a named set, in place of its home.

    Raises :class:`DataError` for a source that cannot be read, for records whose layout is not
    known, and for ``files`` or a layout that the source does not take.
    """
    source = str(source)
    check_source(source)
    check_layout(layout, source)
    if files and not is_named(source):
        raise DataError("file-of-unnamed-set", source=source)
    if source.startswith(PREFIX):
        return replace(read_generated(source), origin=Origin(source))
    if is_named(source):
        problems = load_named(source, tuple(files), bad_rows)
        return replace(problems, origin=Origin(source, _digests(files)))
    is_hub, file = is_hub_source(source), Path(source)
    records = read_hub(HubSource.parse(source)) if is_hub else read_records(file)
    folder = None if is_hub else file.parent
    problems = problems_of(records, source, bad_rows, golds, layout, folder)
    name = source.rpartition("/")[2] if is_hub else file.stem or source
    files = [] if is_hub else [file]
    origin = Origin(source if is_hub else file.name, _digests(files), layout.record())
    return replace(problems, name=name.encode("utf-8", "replace").decode(), origin=origin)


def takes_layout(source: str) -> bool:
    """Whether ``--field`` and ``--map`` say how the rows of a source are read."""
    return not is_named(source) and not source.startswith(PREFIX)


def check_layout(layout: Layout, *sources: str) -> None:
    """Raise :class:`DataError` for a layout that a user gave and none of some sources takes."""
    if layout != _KNOWN and sources and not any(map(takes_layout, sources)):
        raise DataError("layout-without-effect", source=", ".join(sources))


def check_source(source: str) -> None:
    """Raise :class:`DataError` for a mere word that is neither a file nor a named set."""
    is_file = Path(source).suffix or os.path.exists(source)
    if is_file or is_named(source) or is_hub_source(source) or source.startswith(PREFIX):
        return
    listed = ", ".join(NAMED_SETS)
    raise DataError.misspelt(
        "problem-source-missing", source, NAMED_SETS, source=source, known=listed
    )


def problems_of(
    records: Iterable[tuple[int, Any]],
    name: str,
    bad_rows: Literal["stop", "skip"] = "stop",
    golds: NeedsAnswer = "required",
    layout: Layout = _KNOWN,
    folder: Path | None = None,
) -> ProblemSet:
    """The problems of numbered records.

    bad_rows: ``stop`` at the first invalid row, or ``skip`` and record them all. golds: whether a
    row without an answer is invalid; one whose answer is no gold always is. folder: where paths of
    images begin; None rejects paths. Raises :class:`DataError`, also where no row is a problem.
    """
    problems: list[Problem] = []
    bad: list[BadRow] = []
    unknown: LayoutError | None = None
    unread: Counter[str] = Counter()
    records = iter(records)
    first = list(islice(records, 2))
    for number, record in chain(first, records):
        try:
            row = layout.row(record, golds)
            if row is None:
                bad.append(BadRow(number, f"{layout.source} leaves it out."))
                continue
            problems.append(problem_of(number, row, golds, folder))
            unread.update(row.unread)
        except RowError as error:
            if isinstance(error, LayoutError) and not problems:
                unknown = unknown or error
            if bad_rows == "stop":
                _stop(name, number, error, unknown, first)
            bad.append(BadRow(number, str(error)))
    if not problems:
        if unknown is not None:
            _stop(name, bad[0].row, unknown, unknown, first)
        reason = f" Row {bad[0].row}: {bad[0].reason}" if bad else ""
        raise DataError("problem-set-empty", name=name, first=reason)
    return ProblemSet(name, tuple(problems), tuple(bad), dict(unread))


def _stop(
    name: str,
    row: int,
    error: RowError,
    unknown: LayoutError | None,
    first: Iterable[tuple[int, Any]],
) -> NoReturn:
    """Raise for a row; if no row is a problem so far, with the first rows and the options."""
    if isinstance(error.__cause__, UnicodeDecodeError):
        raise not_utf8(f"{name}, row {row},", error.__cause__) from None
    if error is not unknown:
        raise DataError("problem-row-invalid", name=name, row=row, found=error) from error
    rows = "\n".join(f"row {number}: {_example(record)}" for number, record in first)
    raise DataError(
        "problem-layout-unknown", name=name, row=row, reason=error, rows=rows
    ) from error


def _example(record: Any) -> str:
    """A record in one line: each field with the beginning of its value."""
    if not isinstance(record, Mapping):
        return shown(record)
    fields = [f"{str(name)[:60]!r}: {shown(value)}" for name, value in record.items()]
    left_out = [f"and {len(fields) - _MOST_FIELDS} more"] if len(fields) > _MOST_FIELDS else []
    return ", ".join([*fields[:_MOST_FIELDS], *left_out])


def load_named(
    name: str, files: tuple[Path, ...] = (), bad_rows: Literal["stop", "skip"] = "stop"
) -> ProblemSet:
    """A named set, from its source or from local files, joined in their order.

    Rows that the set is known to exclude are among the ``bad_rows`` of the result. Raises
    :class:`DataError` for a set that cannot be downloaded, or a wrong number of problems.
    """
    chosen = NAMED_SETS[name]
    if not files and not chosen.homes:
        raise DataError("set-comes-as-file", name=name, count=chosen.count)
    sources: tuple[Path | HubSource, ...] = files or chosen.homes
    parts = []
    for place, source in enumerate(sources):
        drops = chosen.drops[place] if place < len(chosen.drops) else ()
        records = read_records(source) if isinstance(source, Path) else _fetched(name, source)
        parts.append(_problems(records, str(source), chosen, bad_rows, drops))
    problems = [problem for part in parts for problem in part.problems]
    if len(parts) > 1:  # rows are numbered through
        problems = [replace(problem, row=row) for row, problem in enumerate(problems, 1)]
    left_out = tuple(bad for part in parts for bad in part.bad_rows)
    if len(problems) != chosen.count:
        raise DataError(
            "set-size-differs",
            name=name,
            count=chosen.count,
            where="the given file" if files else ", ".join(map(_described, chosen.homes)),
            rows=len(problems),
            left_out=f", and {len(left_out):,} rows excluded" if left_out else "",
        )
    return ProblemSet(name, tuple(problems), left_out)


def _fetched(name: str, home: HubSource) -> Iterator[tuple[int, Any]]:
    try:
        return read_hub(home)
    except DataError as error:
        reason = error.fields.get("reason", error.message)
        raise DataError("set-download-failed", name=name, error=reason, home=home.name) from error


def _described(home: HubSource) -> str:
    return f"{home} at revision {home.revision[:7]}" if home.revision else str(home)


def _problems(
    records: Iterable[tuple[int, Any]],
    name: str,
    chosen: NamedSet,
    bad_rows: Literal["stop", "skip"],
    drops: Collection[str],
) -> ProblemSet:
    """The problems of records; rows that the set excludes are bad rows, whatever bad_rows is."""
    left_out: list[BadRow] = []

    def kept() -> Iterator[tuple[int, Any]]:
        for row, record in records:
            answer = answer_of(record, chosen.answer) if isinstance(record, Mapping) else record
            if chosen.answer and answer is None:
                left_out.append(BadRow(row, "It has no answer."))
            elif str(answer) in drops:
                left_out.append(BadRow(row, f"Its answer is {answer}, which the set excludes."))
            else:
                yield row, record

    read = problems_of(kept(), name, bad_rows, layout=Layout(is_named=True))
    bad = sorted((*read.bad_rows, *left_out), key=lambda row: row.row)
    return ProblemSet(name, read.problems, tuple(bad))


def _digests(files: Sequence[Path]) -> dict[Path, str]:
    return {file: _digest(file) for file in files}


def _digest(file: Path) -> str:
    digest: Any = hashlib.sha256()
    with open_file(file) as content:
        while block := content.read(2**20):
            digest.update(block)
    return str(digest.hexdigest())
