"""Problem sets, from a user's file or generated, and the parquet rows verl reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tandem_plugin.errors import DataError
from tandem_plugin.lab.data import INSTRUCTION, PromptTemplate, read_problems

Message = dict[str, str]


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


def read_rows(path: Path) -> list[Row]:
    """The rows of a user's file, in any form that ``tandem data`` reads.

    Raises :class:`DataError` for a file, or one of its rows, that cannot be used.
    """
    template = PromptTemplate()
    return [
        Row(tuple(template.messages(problem)), problem.golds)
        for problem in read_problems(path).problems
    ]


def split_rows(rows: Sequence[Row], evaluation: int) -> tuple[list[Row], list[Row]]:
    """Disjoint (training, evaluation) rows: every k-th problem, at most ``evaluation`` of them.

    Rows with the same prompt count once.
    """
    distinct = list({json.dumps(row.messages): row for row in rows}.values())
    if len(distinct) < 2:
        raise DataError("At least two different problems are needed: train and evaluation.")
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
