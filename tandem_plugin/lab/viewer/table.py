"""The responses of a page as a table, as Weights & Biases takes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem_plugin.errors import shown as in_words
from tandem_plugin.lab.rollouts.rollout import Rollout
from tandem_plugin.lab.viewer.page import Listed, ShownResponses
from tandem_plugin.lab.viewer.responses import answer_in, gold_of, prompt_of, turns_of

COLUMNS = (
    "run",
    "file",
    "line",
    "step",
    "problem",
    "sample",
    "prompt",
    "response",
    "gold",
    "answer",
    "outcome",
    "reward",
    "truncated",
    "tokens",
    "senior_share",
    "spans",
    "surprise",
)
"""One row per response; null where a response has no such value.

``senior_share``: of the tokens with a known author, from 0 to 1. ``surprise``: the partner's mean,
in nats per token.
"""
TABLE_MARK = json.dumps({"columns": COLUMNS}).removesuffix("}").encode()
"""How every table begins, by which a later command knows that it may replace it."""


def table_rows(
    shown: ShownResponses, on_row: Callable[[], None] = lambda: None
) -> list[tuple[Any, ...]]:
    """The rows of the table, in the order of runs, files and lines."""
    names = shown.names
    rows = []
    for listed, row, grade, columns, text in shown.views():
        on_row()
        place = (shown.runs[listed.run], names[listed.file], listed.line, listed.step)
        number = shown.numbers[listed.problem]
        rows.append((*place, number, *_values(listed, row, grade, columns, text)))
    return rows


def _values(
    listed: Listed,
    row: Rollout,
    grade: Mapping[str, Any] | None,
    columns: Mapping[str, Any],
    text: str,
) -> tuple[Any, ...]:
    turns = turns_of(prompt_of(row.fields))
    prompt = "\n\n".join(f"{role}: {turn}" if role else turn for role, turn in turns)
    share = columns["senior"] / columns["team"] if columns["team"] else None
    answers = (_written(gold_of(row.fields)), _written(answer_in(row, grade)))
    cells = (columns[name] for name in ("outcome", "reward", "truncated", "tokens"))
    ends = columns["spans"], columns["surprise"]
    return (listed.sample, prompt, text, *answers, *cells, share, *ends)


def _written(value: Any) -> str | None:
    """An answer as text: a column of a table has one type."""
    return value if value is None or isinstance(value, str) else in_words(value)


def table_json(rows: Sequence[Sequence[Any]]) -> str:
    """``{"columns": [...], "data": [...]}``, for ``wandb.Table(**json.load(file))``."""
    return json.dumps({"columns": COLUMNS, "data": rows}, allow_nan=False) + "\n"
