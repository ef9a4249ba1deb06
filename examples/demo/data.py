"""Problem sets, from a user's file or generated, and the parquet rows verl reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
PROMPT_FIELDS = ("problem", "prompt", "question")
ANSWER_FIELD = "answer"

Message = dict[str, str]


class ProblemFileError(ValueError):
    """A problem file that cannot be read; the message says which row and what is wrong."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem as the trainer sees it: chat messages and every answer that counts as right."""

    messages: tuple[Message, ...]
    answers: tuple[str, ...]


def make_row(question: str, answer: str) -> Row:
    """A row with one user turn that asks for a boxed answer."""
    return Row(({"role": "user", "content": with_instruction(question)},), (answer,))


def with_instruction(question: str) -> str:
    """The question followed by the boxed instruction, once."""
    question = question.strip()
    return question if "\\boxed" in question else f"{question}\n{INSTRUCTION}"


def read_problems(path: Path) -> list[Row]:
    """The rows of a ``.jsonl``, ``.json`` (a list) or ``.parquet`` file.

    Each record holds its text in ``problem``, ``prompt`` or ``question`` (a string, or chat
    messages) and its ``answer`` (a string, a number, or a list of those: any of them is right).

    Raises:
        ProblemFileError: the file or one of its rows cannot be used.
    """
    records = _read_records(path)
    if not records:
        raise ProblemFileError(f"{path} holds no problems.")
    return [_row_of(record, f"{path}, row {place}") for place, record in enumerate(records, 1)]


def split_rows(rows: Sequence[Row], evaluation: int) -> tuple[list[Row], list[Row]]:
    """Disjoint (training, evaluation) rows: every k-th problem, at most ``evaluation`` of them.

    Rows with the same prompt count once.
    """
    distinct = list({json.dumps(row.messages): row for row in rows}.values())
    if len(distinct) < 2:
        raise ProblemFileError("At least two different problems are needed: train and evaluation.")
    stride = max(2, math.ceil(len(distinct) / evaluation), 5 if len(distinct) >= 10 else 2)
    return [row for place, row in enumerate(distinct) if place % stride], distinct[::stride]


def write_parquet(rows: Iterable[Row], path: Path, split: str) -> None:
    """Writes rows in the columns verl's dataset expects.

    ``reward_model.ground_truth`` is a string column, or a list-of-strings column when any row
    has several right answers (a parquet column has one type).
    """
    rows = list(rows)
    several = any(len(row.answers) > 1 for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(
        {
            "data_source": "demo",
            "prompt": list(row.messages),
            "ability": "math",
            "reward_model": {
                "style": "rule",
                "ground_truth": list(row.answers) if several else row.answers[0],
            },
            "extra_info": {"index": index, "split": split},
        }
        for index, row in enumerate(rows)
    ).to_parquet(path)


def _read_records(path: Path) -> list[Any]:
    if not path.is_file():
        raise ProblemFileError(f"There is no problem file {path}.")
    match path.suffix:
        case ".parquet":
            return list(pd.read_parquet(path).to_dict("records"))
        case ".json":
            return _read_json_list(path)
        case ".jsonl":
            return _read_json_lines(path)
        case suffix:
            raise ProblemFileError(
                f"{path} ends in {suffix!r}: a problem file is .jsonl, .json or .parquet."
            )


def _read_json_list(path: Path) -> list[Any]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ProblemFileError(f"{path} is not JSON: {error}.") from error
    if not isinstance(records, list):
        raise ProblemFileError(f"{path} holds a {type(records).__name__}, not a list of problems.")
    return records


def _read_json_lines(path: Path) -> list[Any]:
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ProblemFileError(f"{path}, line {number} is not JSON: {error}.") from error
    return records


def _row_of(record: Any, where: str) -> Row:
    if not isinstance(record, Mapping):
        raise ProblemFileError(f"{where} is not an object with a problem and an answer.")
    field = next((name for name in PROMPT_FIELDS if _present(record.get(name))), None)
    if field is None:
        raise ProblemFileError(
            f"{where} has no text: expected one of {', '.join(PROMPT_FIELDS)}; "
            f"it has {', '.join(map(str, record)) or 'nothing'}."
        )
    return Row(_messages_of(record[field], where), _answers_of(record.get(ANSWER_FIELD), where))


def _messages_of(text: Any, where: str) -> tuple[Message, ...]:
    if isinstance(text, str):
        return ({"role": "user", "content": with_instruction(text)},)
    try:
        messages = [{"role": turn["role"], "content": turn["content"]} for turn in text]
        *before, last = messages
        return (*before, {**last, "content": with_instruction(last["content"])})
    except (TypeError, KeyError, ValueError, AttributeError):
        raise ProblemFileError(f"{where}: the prompt is neither text nor chat messages.") from None


def _answers_of(answer: Any, where: str) -> tuple[str, ...]:
    several = answer.tolist() if hasattr(answer, "tolist") else answer
    if not isinstance(several, list | tuple):
        several = [several]
    if not several or not all(_present(one) for one in several):
        raise ProblemFileError(f"{where} has no answer: expected a field {ANSWER_FIELD!r}.")
    if not all(isinstance(one, str | int | float) for one in several):
        raise ProblemFileError(f"{where}: the answer is neither a string nor a number.")
    return tuple(str(one).strip() for one in several)


def _present(value: Any) -> bool:
    """Neither absent, nor blank, nor the NaN that stands for absent in a table."""
    if isinstance(value, float):
        return not math.isnan(value)
    return value is not None and (not isinstance(value, str) or bool(value.strip()))
