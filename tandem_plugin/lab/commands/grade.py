"""``tandem grade``: grade responses against golds, one record per line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tandem_plugin.errors import DataError
from tandem_plugin.files import AppendedFile, open_file, system_reason
from tandem_plugin.files.strict_json import is_number, parse_json
from tandem_plugin.terminal.output import JsonOption, print_fields, print_json

if TYPE_CHECKING:
    from tandem_plugin.grading import Grade, Grader

__all__ = ["GradeRecords", "grade"]

PROMPT_FIELDS = ("prompt", "question", "problem")
GOLD_FIELDS = ("gold", "answer", "ground_truth", "gts", "label")
_BATCH = 1_000

_Row: TypeAlias = tuple[int, str, object, "str | None"]


def grade(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A JSON Lines file with the fields response (or output) and gold (or "
            "answer, ground_truth, gts, label). A gold may be a list, of which any "
            "one is correct. If a row has a prompt (or question, problem), an answer "
            "merely copied from it is reported as copied."
        ),
    ] = None,
    gold: Annotated[
        str | None, typer.Option(help="A single gold answer, instead of a file.")
    ] = None,
    response: Annotated[
        str | None, typer.Option(help="The response to grade against it, with its answer in a box.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the records to this file, and resume after its last record. "
            "Default: stdout."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.05, help="CPU time limit per response, in seconds.")
    ] = 5.0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of worker processes. Default: the number of CPUs, at most 4."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Grade responses by the answers in their last boxes.

    Writes one record per line: line, outcome (correct, incorrect, copied, no_answer, timeout,
    error), reward, answer, rule, milliseconds, golds. A summary follows, on stderr if the records
    go to stdout. With --json the summary is the only output, and records go only to --out. Run the
    same command again to resume --out: rows added at the end are graded, but the command is
    rejected if graded rows, --seconds or versions have changed. `tandem view` shows the
    grades of rollouts.jsonl if they are in rollouts.grades.jsonl.
    """
    from tandem_plugin.grading import Grader, GradingLimits

    if file is not None and gold is None and response is None and not os.path.isfile(file):
        raise DataError("TP965", file=file)
    with Grader(GradingLimits(seconds=seconds, workers=workers)) as grader:
        if file is None:
            if gold is None or response is None:
                raise typer.BadParameter("pass a FILE, or both --gold and --response.")
            _one(grader.grade(response, gold), json)
        elif gold is not None or response is not None:
            raise typer.BadParameter("pass either a FILE, or --gold and --response.")
        else:
            _many(grader, file, out, json, _deciding(seconds))


def _one(record: Grade, json: bool) -> None:
    fields = record.to_dict()
    if json:
        print_json(fields)
    else:
        print_fields({name: value for name, value in fields.items() if value is not None})


def _many(
    grader: Grader, file: Path, out: Path | None, json: bool, noted: Mapping[str, Any]
) -> None:
    from contextlib import nullcontext
    from json import dumps

    from tandem_plugin.files import InputFiles, note_of
    from tandem_plugin.lab.rollouts.grades import input_digest, response_digest
    from tandem_plugin.progress import ShownProgress

    if out is not None:
        InputFiles(responses=[file]).check_outputs(out, note_of(out))
    stream = nullcontext(None) if out is None else GradeRecords(out, noted)
    with stream as lines, ShownProgress() as progress:
        records = [] if lines is None else lines.before
        if lines is not None and records:
            lines.check(row[:4] for row in _rows(file))
        done = {record["line"] for record in records}
        size_of_all = os.path.getsize(file) if os.path.isfile(file) else None
        task = progress.add_task("grade", total=size_of_all)
        for batch, size in _batches(file, done):
            grades = grader.grade_batch(row[1:] for row in batch)
            for (number, text, golds, prompt), record in zip(batch, grades, strict=True):
                row = {
                    "line": number,
                    **record.to_dict(),
                    "golds": _texts(golds),
                    "response_sha256": response_digest(text),
                    "input_sha256": input_digest(text, golds, prompt),
                }
                records.append(row)
                if lines is not None:
                    lines.write_line(row)
                elif not json:
                    typer.echo(dumps(row))
            progress.advance(task, size)
    _summarise(records, out, json)


def _deciding(seconds: float) -> dict[str, Any]:
    """Everything that decides a grade, besides the row."""
    from importlib.metadata import version

    from tandem_plugin._version import __version__

    return {"tandem_plugin": __version__, "sympy": version("sympy"), "seconds": seconds}


def _texts(gold: object) -> list[str]:
    """Every gold as text; none if the record says that they cannot be read."""
    from tandem_plugin.grading.extraction import read_golds

    found = read_golds(gold)
    return [] if isinstance(found, str) else list(found)


def _batches(file: Path, done: Container[int]) -> Iterator[tuple[list[_Row], int]]:
    """Lists of (line, response, gold, prompt), with the number of bytes they were read from.

    done: the lines that have a record.
    """
    batch: list[_Row] = []
    size = 0
    for number, text, gold, prompt, length in _rows(file):
        size += length
        if number not in done:
            batch.append((number, text, gold, prompt))
        if len(batch) == _BATCH:
            yield batch, size
            batch, size = [], 0
    if batch:
        yield batch, size


def _summarise(records: list[dict[str, Any]], out: Path | None, json: bool) -> None:
    from tandem_plugin.grading import OUTCOMES

    total = len(records)
    counts = Counter(row["outcome"] for row in records)
    outcomes = {name: counts[name] for name in OUTCOMES}
    rules = dict(Counter(row["rule"] for row in records).most_common())
    reward = outcomes["correct"] / total if total else None
    if json:
        result = {"responses": total, "reward": reward, "outcomes": outcomes, "rules": rules}
        print_json({**result, "out": None if out is None else str(out)})
        return
    fields: dict[str, str] = {
        "responses": f"{total:,}",
        "reward": "none" if reward is None else f"{reward:.4f}",
        **{name: f"{count:,}" for name, count in outcomes.items()},
        "rules": ", ".join(f"{name} {count:,}" for name, count in rules.items()),
    }
    print_fields(fields, stderr=out is None)


def _rows(path: Path) -> Iterator[tuple[int, str, object, str | None, int]]:
    """(line, response, gold, prompt or None, bytes) of every row, without blank lines.

    Raises :class:`DataError` for a file that cannot be read and for the first row without a
    response or a gold: it is probably the wrong file.
    """
    try:
        with open_file(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, *_row(line, f"{path}, line {number}"), len(line)
    except OSError as error:
        raise DataError("TP754", path=path, reason=system_reason(error)) from error


def _row(line: bytes, where: str) -> tuple[str, object, str | None]:
    """A row's response, gold, and prompt or None."""
    from tandem_plugin.lab.rollouts.grades import RESPONSE_FIELDS

    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError("TP968", where=where, error=error) from error
    if not isinstance(row, dict):
        raise DataError("TP969", where=where)
    response = next((row[name] for name in RESPONSE_FIELDS if name in row), None)
    gold = next((row[name] for name in GOLD_FIELDS if row.get(name) is not None), None)
    prompts = (row.get(name) for name in PROMPT_FIELDS)
    if not isinstance(response, str):
        raise DataError("TP970", where=where, response_fields=", ".join(RESPONSE_FIELDS))
    if gold is None:
        raise DataError("TP971", where=where, gold_fields=", ".join(GOLD_FIELDS))
    return response, gold, next((text for text in prompts if isinstance(text, str)), None)


class GradeRecords(AppendedFile):
    """Records by the line of the row they grade.

    settings: everything that decides a grade, besides the row. Raises :class:`OutputError` for a
    file that cannot be resumed.
    """

    what, one, begin = "grades", "record of `tandem grade`", b'{"line": '

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._found: dict[int, dict[str, Any]] = {}
        super().__init__(path, settings)

    @property
    def before(self) -> list[dict[str, Any]]:
        """The existing records, the last one per line."""
        return list(self._found.values())

    def check(self, rows: Iterable[tuple[int, str, object, str | None]]) -> None:
        """Raise :class:`DataError` unless every record's row is unchanged.

        rows: (line, response, gold, prompt) of the input, in its order.
        """
        from tandem_plugin.lab.rollouts.grades import input_digest

        left = dict(self._found)
        for number, response, gold, prompt in rows:
            record = left.pop(number, None)
            if record and record["input_sha256"] != input_digest(response, gold, prompt):
                raise DataError("TP966", number=number, path=self.path)
        if left:
            raise DataError("TP998", path=self.path, left=len(left), left_2=min(left))

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
