"""``tandem grade``: grade responses against golds, one record per line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tandem_plugin.errors import DataError
from tandem_plugin.files import InputFiles, open_file, replacing, system_reason
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.terminal.output import JsonOption, print_fields, print_json
from tandem_plugin.terminal.rows import rows_of_stdin

if TYPE_CHECKING:
    from tandem_plugin.grading import Grader

__all__ = ["grade"]

PROMPT_FIELDS = ("prompt", "question", "problem")
GOLD_FIELDS = ("gold", "answer", "ground_truth", "gts", "label")
_BATCH = 1_000


def grade(
    file: Annotated[
        Path,
        typer.Argument(
            callback=rows_of_stdin,
            help="A JSON Lines file, or - for standard input, with the fields response (or "
            "output) and gold (or answer, ground_truth, gts, label). A gold may be a list, of "
            "which any one is correct. If a row has a prompt (or question, problem), an answer "
            "merely copied from it is reported as copied.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the records to this file. Default: stdout."),
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
    go to stdout. With --json the summary is the only output, and records go only to --out, which
    is written when all are graded. `tandem view` shows the grades of rollouts.jsonl if they are in
    rollouts.grades.jsonl.
    """
    from json import dumps

    from tandem_plugin.grading import Grader, GradingLimits

    if not os.path.isfile(file):
        raise DataError("TP965", file=file)
    records: list[dict[str, Any]] = []
    with Grader(GradingLimits(seconds=seconds, workers=workers)) as grader, _lines(file, out) as to:
        for record in _records(grader, file):
            records.append(record)
            if to is not None:
                to.write(dumps(record) + "\n")
            elif not json:
                typer.echo(dumps(record))
    _summarise(records, out, json)


class _Row(NamedTuple):
    """A response to grade, and what it was read from."""

    line: int
    response: str
    gold: object
    prompt: str | None
    size: int
    """The bytes of its line."""


@contextmanager
def _lines(file: Path, out: Path | None) -> Iterator[IO[str] | None]:
    """Where records are written: ``out``, which is replaced at the end; None without one."""
    if out is None:
        yield None
        return
    InputFiles(responses=[file]).check_outputs(out)
    with replacing(out) as whole, whole.open("w", encoding="utf-8") as lines:
        yield lines


def _records(grader: Grader, file: Path) -> Iterator[dict[str, Any]]:
    """The record of each row, with a progress bar."""
    from tandem_plugin.lab.rollouts.grades import response_digest
    from tandem_plugin.progress import ShownProgress

    rows = _rows(file)
    with ShownProgress() as progress:
        task = progress.add_task("grade", total=file.stat().st_size)
        while batch := list(islice(rows, _BATCH)):
            grades = grader.grade_batch((row.response, row.gold, row.prompt) for row in batch)
            for row, found in zip(batch, grades, strict=True):
                yield {
                    "line": row.line,
                    **found.to_dict(),
                    "golds": _texts(row.gold),
                    "response_sha256": response_digest(row.response),
                }
            progress.advance(task, sum(row.size for row in batch))


def _texts(gold: object) -> list[str]:
    """Every gold as text; none if the record says that they cannot be read."""
    from tandem_plugin.grading.extraction import read_golds

    found = read_golds(gold)
    return [] if isinstance(found, str) else list(found)


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


def _rows(path: Path) -> Iterator[_Row]:
    """Every row of a file, without blank lines.

    Raises :class:`DataError` for a file that cannot be read and for the first row without a
    response or a gold: it is probably the wrong file.
    """
    try:
        with open_file(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _row(line, number, f"{path}, line {number}")
    except OSError as error:
        raise DataError("TP754", path=path, reason=system_reason(error)) from error


def _row(line: bytes, number: int, where: str) -> _Row:
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
    prompt = next((text for text in prompts if isinstance(text, str)), None)
    return _Row(number, response, gold, prompt, len(line))
