"""Problems from the records of data sets, by the field names that these use, and from tasks."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tandem_plugin.errors import DataError, shown
from tandem_plugin.grading.generated import check_task, gold_of
from tandem_plugin.grading.golds import GOLD_FIELDS, given_answer, read_golds, solved_answer
from tandem_plugin.lab.data.choices import LETTERS, Choices, Numbered, Numbers
from tandem_plugin.lab.data.fields import LABEL_FIELDS, RowError, named_fields, unread_fields
from tandem_plugin.lab.data.problem import SURROGATE, BadRow, Message, Problem, ProblemSet
from tandem_plugin.lab.data.questions import read_question
from tandem_plugin.lab.data.records import (
    HubSource,
    is_hub_source,
    not_utf8,
    read_hub,
    read_records,
)

_PREFIX = "reasoning-gym:"
Golds: TypeAlias = Literal["required", "optional"]
"""Whether a record without an answer is invalid, or a problem without golds."""


def read_problems(
    source: str | Path,
    bad_rows: Literal["stop", "skip"] = "stop",
    name: str | None = None,
    golds: Golds = "required",
) -> ProblemSet:
    """Read the problems of a file, the Hub, or a reasoning-gym task.

    On the Hub, a source is ``owner/name[:config][#split]``; for tasks see :func:`read_generated`. A
    record holds its text as :func:`read_question` reads it, and its answers in one of
    ``GOLD_FIELDS``, in ``reward_model.ground_truth``, or marked in its solution.
    bad_rows: ``stop`` at the first invalid row, or ``skip`` and record them all. golds: whether a
    record without any answer is a valid problem; one whose answer cannot be read never is. Raises
    :class:`DataError`.
    """
    source = str(source)
    if is_generated_source(source):
        return read_generated(source)
    if is_hub_source(source):
        records, own_name = read_hub(HubSource.parse(source)), source.rpartition("/")[2]
    else:
        records, own_name = read_records(Path(source)), Path(source).stem
    printed = (name or own_name or source).encode("utf-8", "replace").decode()
    return problems_of(records, printed, bad_rows, golds)


def problems_of(
    records: Iterable[tuple[int, Any]],
    name: str,
    bad_rows: Literal["stop", "skip"] = "stop",
    golds: Golds = "required",
) -> ProblemSet:
    """The problems of numbered records. Raises :class:`DataError`, also where there are none."""
    reader = _Reader(name, bad_rows, golds)
    for row, record in records:
        with reader.row(row):
            reader.read(row, record)
    return reader.problems()


class _Reader:
    """Reads records in order; see :func:`problems_of`."""

    def __init__(self, name: str, bad_rows: Literal["stop", "skip"], golds: Golds) -> None:
        self._name, self._bad_rows, self._golds = name, bad_rows, golds
        self._problems: dict[int, Problem] = {}
        self._numbered: dict[int, Numbered] = {}
        """The rows whose answer is a number that can mean several choices, until all are read."""
        self._numbers = Numbers()
        self._bad: list[BadRow] = []
        self._unread: Counter[str] = Counter()

    @contextmanager
    def row(self, row: int) -> Iterator[None]:
        """Stop at a bad row, or record it."""
        try:
            yield
        except RowError as error:
            if self._bad_rows == "stop":
                if isinstance(error.__cause__, UnicodeDecodeError):
                    raise not_utf8(f"{self._name}, row {row},", error.__cause__) from None
                raise DataError(
                    "problem-row-invalid", name=self._name, row=row, found=error
                ) from None
            self._bad.append(BadRow(row, str(error)))

    def read(self, row: int, record: Any) -> None:
        fields = fields_of(record)
        question = read_question(fields)
        golds = _golds(fields, self._golds, question.choices)
        _check_text(question.messages, () if isinstance(golds, Numbered) else golds)
        if isinstance(golds, Numbered):
            self._numbers.add(golds)
            self._numbered[row] = golds
            golds = ()
        self._problems[row] = Problem(row, question.messages, golds, question.raw)
        self._unread.update(unread_fields(fields))

    def problems(self) -> ProblemSet:
        for row, answer in self._numbered.items():
            problem = self._problems.pop(row)
            with self.row(row):
                letter = LETTERS[self._numbers.place(answer)]
                self._problems[row] = replace(problem, golds=(letter,))
        if not self._problems:
            first = f" Row {self._bad[0].row}: {self._bad[0].reason}" if self._bad else ""
            raise DataError("problem-set-empty", name=self._name, first=first)
        found = tuple(self._problems[row] for row in sorted(self._problems))
        bad = tuple(sorted(self._bad, key=lambda one: one.row))
        return ProblemSet(self._name, found, bad, dict(self._unread))


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record that hold something; :class:`RowError` if it is no object."""
    if isinstance(record, Exception):
        raise RowError(f"This is not JSON: {record}.") from record
    if not isinstance(record, Mapping):
        kind = type(record).__name__
        raise RowError(f"This is a {kind}, not an object with a problem and an answer.")
    return named_fields(record)


def _check_text(messages: Iterable[Message], golds: Iterable[str]) -> None:
    """Raise for half a character, which JSON can contain, but no tokenizer and no file."""
    texts = [("prompt", turn[part]) for turn in messages for part in turn]
    for what, text in (*texts, *(("answer", gold) for gold in golds)):
        if found := SURROGATE.search(text):
            half = f"\\u{ord(found[0]):04x}"
            raise RowError(f"Its {what} contains the lone surrogate {half}, half of a character.")


def _golds(
    record: Mapping[str, Any], golds: Golds, choices: Choices | None
) -> tuple[str, ...] | Numbered:
    """The record's answers, or its right choice: see :func:`_chosen`."""
    if choices is not None and (answers := _named_choices(record)):
        return _chosen(answers, choices)
    answer = given_answer(record)
    if answer is None:
        answer = _spans(record)
    if answer is None:
        answer = solved_answer(record)
    if answer is not None:
        return _read_golds(answer)
    if golds == "optional":
        return ()
    looked = ", ".join((*GOLD_FIELDS, "reward_model.ground_truth"))
    raise RowError(f"It has no answer in any of {looked}, and no solution with a boxed answer.")


def _named_choices(record: Mapping[str, Any]) -> list[Any]:
    """What may name the right one of a record's choices, the most usual first."""
    fields = [record[name] for name in LABEL_FIELDS if name in record]
    answers = [given_answer(record), *fields, solved_answer(record)]
    return [answer for answer in answers if answer is not None]


def _chosen(answers: Sequence[Any], choices: Choices) -> tuple[str] | Numbered:
    """The letter of the right choice, or a number that names it, from the first that is one.

    Raises :class:`RowError` if none of them names a choice.
    """
    for answer in answers:
        texts = _read_golds(answer)
        if len(texts) > 1 and not isinstance(answer, bool):
            continue
        for found in (choices.right(text, isinstance(answer, str)) for text in texts):
            if isinstance(found, int):
                return (LETTERS[found],)
            if found is not None:
                return found
    raise RowError(f"Its answer {shown(answers[0])} is none of its choices.")


def _read_golds(answer: Any) -> tuple[str, ...]:
    golds = read_golds(answer)
    if isinstance(golds, str):
        raise RowError(golds)
    return golds


def _spans(record: Mapping[str, Any]) -> Any:
    """The answers of SQuAD: the texts of its spans."""
    answers = record.get("answers")
    return answers.get("text") or None if isinstance(answers, Mapping) else None


def is_generated_source(source: str) -> bool:
    """Whether a source names a task of reasoning-gym."""
    return source.startswith(_PREFIX)


def read_generated(source: str) -> ProblemSet:
    """The problems of ``reasoning-gym:NAME,count=500,seed=0,...``.

    count: the number of problems. seed: selects them; sets with different seeds are drawn
    independently, and in a small task they can share problems. Other keys are the
    task's own settings, such as ``max_terms=3``. Raises :class:`DataError` for an unknown task or
    setting, :class:`GradingError` if the library is missing.
    """
    name, *pairs = source.removeprefix(_PREFIX).split(",")
    check_task(name)
    settings = dict(map(_setting, pairs))
    count, seed = settings.pop("count", 500), settings.pop("seed", 0)
    import reasoning_gym

    # The library seeds problem i with seed + i, so adjacent seeds share problems.
    start = int.from_bytes(hashlib.sha256(f"{name} {seed}".encode()).digest()[:4], "big")
    try:
        if type(count) is not int:  # infinity would never end
            raise ValueError(f"count={count!r} is not an integer")
        entries = reasoning_gym.create_dataset(name, size=count, seed=start, **settings)
        problems = tuple(
            Problem(
                row,
                ({"role": "user", "content": entry["question"].strip()},),
                (gold_of(name, entry),),
            )
            for row, entry in enumerate(entries, 1)
        )
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError("generated-set-failed", source=source, error=error) from error
    return ProblemSet(f"reasoning-gym-{name}", problems)


def _setting(pair: str) -> tuple[str, Any]:
    """``max_terms=3`` as a name and a value; a value that is not JSON is text."""
    key, _, text = pair.partition("=")
    try:
        return key.strip(), json.loads(text)
    except ValueError:
        return key.strip(), text.strip()
