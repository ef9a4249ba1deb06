"""Problems from the records of data sets, by the field names that these use, and from tasks."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tandem_plugin.errors import DataError
from tandem_plugin.grading.extraction import extract_answer, read_golds
from tandem_plugin.grading.generated import check_task, gold_of
from tandem_plugin.lab.data.problem import BadRow, Message, Problem, ProblemSet
from tandem_plugin.lab.data.records import HubSource, is_hub_source, read_hub, read_records

TEXT_FIELDS = ("problem", "question", "prompt", "messages", "input", "query")
GOLD_FIELDS = (
    "answer",
    "final_answer",
    "ground_truth",
    "gold",
    "target",
    "label",
    "expected_answer",
)
SOLUTION_FIELDS = ("solution", "solutions", "response")
_PREFIX = "reasoning-gym:"
_MARKED = "####"
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
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
    record holds its text in one of ``TEXT_FIELDS``, as text or chat messages, and its answers in
    one of ``GOLD_FIELDS``, in ``reward_model.ground_truth``, or in the last box of its solution.
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
    return problems_of(records, name or own_name or source, bad_rows, golds)


def problems_of(
    records: Iterable[tuple[int, Any]],
    name: str,
    bad_rows: Literal["stop", "skip"] = "stop",
    golds: Golds = "required",
) -> ProblemSet:
    """The problems of numbered records. Raises :class:`DataError`, also where there are none."""
    problems: list[Problem] = []
    bad: list[BadRow] = []
    for row, record in records:
        found = problem_of(row, record, golds)
        if isinstance(found, Problem):
            problems.append(found)
        elif bad_rows == "stop":
            raise DataError("TP725", name=name, row=row, found=found)
        else:
            bad.append(BadRow(row, found))
    if not problems:
        first = f" Row {bad[0].row}: {bad[0].reason}" if bad else ""
        raise DataError("TP726", name=name, first=first)
    return ProblemSet(name, tuple(problems), tuple(bad))


def problem_of(row: int, record: Any, golds: Golds = "required") -> Problem | str:
    """The problem in a record, or a sentence that says why it is invalid."""
    if isinstance(record, Exception):
        return f"This is not JSON: {record}."
    if not isinstance(record, Mapping):
        return f"This is a {type(record).__name__}, not an object with a problem and an answer."
    asked = _asked(record)
    if isinstance(asked, str):
        return asked
    found = _golds(record, golds)
    if isinstance(found, str):
        return found
    messages, raw = asked
    return Problem(row, messages, found, raw)


def _asked(record: Mapping[str, Any]) -> tuple[tuple[Message, ...], str | None] | str:
    """The chat and, if the record has a text, that text unchanged."""
    field = next((name for name in TEXT_FIELDS if _is_present(record.get(name))), None)
    if field is None:
        has = ", ".join(map(str, record)) or "no field"
        return f"It has no text in any of {', '.join(TEXT_FIELDS)}; it has {has}."
    value = record[field]
    if isinstance(value, str):
        return ({"role": "user", "content": value.strip()},), value
    turns = value.tolist() if hasattr(value, "tolist") else value
    wrong = f"Its {field} is neither text nor chat messages with role and content."
    try:
        messages = [{"role": turn["role"], "content": turn["content"]} for turn in turns]
    except (TypeError, KeyError):
        return wrong
    if not all(isinstance(part, str) for message in messages for part in message.values()):
        return wrong
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    if not messages or not messages[-1]["content"].strip():
        return f"Its {field} does not end with a user turn."
    return tuple(messages), None


def given_answer(record: Mapping[str, Any]) -> Any:
    """The value of a record's first non-blank answer field; None if all are blank."""
    reward_model = record.get("reward_model")
    values = [record.get(name) for name in GOLD_FIELDS]
    if isinstance(reward_model, Mapping):
        values.insert(0, reward_model.get("ground_truth"))
    return next((value for value in values if _is_present(value)), None)


def _golds(record: Mapping[str, Any], golds: Golds) -> tuple[str, ...] | str:
    answer = given_answer(record)
    if answer is not None:
        return read_golds(_behind_mark(answer))
    for name in SOLUTION_FIELDS:
        solution = record.get(name)
        if isinstance(solution, str) and (found := extract_answer(solution)).answer is not None:
            return (found.answer,)
    if golds == "optional":
        return ()
    looked = ", ".join((*GOLD_FIELDS, "reward_model.ground_truth"))
    return f"It has no answer in any of {looked}, and no solution with a boxed answer."


def _behind_mark(value: Any) -> Any:
    """The answer 1080 of a worked solution that ends in ``#### 1,080``, as in GSM8K."""
    if not (isinstance(value, str) and _MARKED in value):
        return value
    answer = value.rpartition(_MARKED)[2].strip()
    return answer.replace(",", "") if _THOUSANDS.fullmatch(answer) else answer


def _is_present(value: Any) -> bool:
    """Neither absent, nor blank, nor the NaN that marks absence in a table."""
    if isinstance(value, float):
        return not math.isnan(value)
    if hasattr(value, "__len__"):
        return len(value) > 0 and not (isinstance(value, str) and not value.strip())
    return value is not None


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
        raise DataError("TP730", source=source, error=error) from error
    return ProblemSet(f"reasoning-gym-{name}", problems)


def _setting(pair: str) -> tuple[str, Any]:
    """``max_terms=3`` as a name and a value; a value that is not JSON is text."""
    key, _, text = pair.partition("=")
    try:
        return key.strip(), json.loads(text)
    except ValueError:
        return key.strip(), text.strip()
