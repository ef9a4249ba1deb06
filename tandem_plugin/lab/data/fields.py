"""The fields of a data set's records, by what they hold; docs/data.md lists the same names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from tandem_plugin.files import parse_json
from tandem_plugin.grading.golds import GOLD_FIELDS, SOLUTION_FIELDS, is_present


class RowError(ValueError):
    """A row is not a problem that can be asked; the text says why, in a sentence."""


TEXT_FIELDS = ("problem", "question", "prompt", "messages", "input", "query")
"""Each holds a whole problem, as text or as chat messages."""
INSTRUCTION_FIELD = "instruction"
"""Stands before the text; without one it is the problem."""
CONTEXT_FIELDS = (
    *("context", "passage", "article", "paragraph", "background", "document", "story", "body"),
    *("premise", "table"),
)
SYSTEM_FIELDS = ("system", "system_prompt", "system_message")
CHOICE_FIELDS = (
    *("choices", "options", "answer_choices", "answer_options", "candidates", "alternatives"),
    "endings",
)
LABEL_FIELDS = (
    *("answerKey", "answer_key", "correct", "correct_option", "correct_choice", "correct_answer"),
    *("answer_letter", "answer_idx", "answer_index", "cop"),
)
"""Further fields that name the right one of several choices."""
METADATA_FIELDS = frozenset(
    (
        *("id", "_id", "uid", "uuid", "idx", "index", "unique_id", "question_id", "problem_id"),
        *("problem_idx", "problem_number", "source", "data_source", "datasource", "dataset"),
        *("url", "link", "license", "author", "split", "subset", "subject", "topic", "domain"),
        *("category", "type", "question_type", "problem_type", "answer_type", "tags", "task"),
        *("title", "name", "level", "difficulty", "year", "competition", "language", "ability"),
        *("metadata", "extra_info", "reward_model", "rationale", "explanation", "reasoning"),
        *("cot", "cot_content", "output", "completion", "generation", "generations"),
        *("generated_solution", "responses"),
    )
)
"""Fields about a problem, and written answers to it, which no prompt needs."""

_UNREADABLE = re.compile(
    r"(?:\w+_)?(?:image|img|picture|photo|figure|diagram|audio|speech|video)s?"
    r"(?:_(?:\d+|path|url|file|name|bytes|data)s?)*\d*"
    r"|tools|functions|tables|history",
    re.IGNORECASE,
)
"""Fields without which a problem is another one, and which no text prompt can hold."""
_COLUMN = re.compile(
    r"(?:option|choice|opt|op)[_ ]?([a-j]|\d{1,2})|answer_?([a-j])|([a-j])", re.IGNORECASE
)
"""A column of one choice; of the last kind only in upper case."""

_READ = {
    *(*TEXT_FIELDS, INSTRUCTION_FIELD, *CONTEXT_FIELDS, *SYSTEM_FIELDS, *CHOICE_FIELDS),
    *(*GOLD_FIELDS, *LABEL_FIELDS, *SOLUTION_FIELDS, "answers"),
}
_KNOWN = {name.lower(): name for name in (*_READ, *METADATA_FIELDS)}


def named_fields(record: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields that hold something, by their usual names: ``Question`` is ``question``.

    A byte-order mark, as spreadsheets put before the first column's name, is no part of it.
    """
    found: dict[str, Any] = {}
    for name, value in record.items():
        plain = str(name).strip("\ufeff ")
        usual = _KNOWN.get(plain.lower(), plain)
        if is_present(value):
            found.setdefault(usual if usual not in record else plain, value)
    return found


def parsed(value: Any) -> Any:
    """A list or an object, also from its text as JSON or as Python writes it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        with suppress(ValueError):
            return parse_json(value)
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(value.strip())
    return value


def unreadable_field(record: Mapping[str, Any]) -> str | None:
    """The first field that a problem needs and no text prompt can hold, such as an image."""
    needed = (name for name in record if _is_unreadable(name))
    return next((name for name in needed if not _is_none(record[name])), None)


@lru_cache
def _is_unreadable(name: str) -> bool:
    return _UNREADABLE.fullmatch(name) is not None


def _is_none(value: Any) -> bool:
    """False and 0, as in a column that says whether there is an image, or how many."""
    return isinstance(value, bool | int | float) and not value


def choice_columns(record: Mapping[str, Any]) -> dict[str, str]:
    """Columns that hold one choice each, by their labels: ``A`` to ``D``, ``option1``, ``opa``.

    Empty unless the labels count from ``A``, 0 or 1 without a gap.
    """
    found = {label: name for name in record if (label := _column_label(name))}
    if len(found) < 2:
        return {}
    labels = sorted(found, key=lambda label: (len(label), label))
    starts = [labels == [chr(65 + i) for i in range(len(labels))]]
    starts += [labels == [str(i + first) for i in range(len(labels))] for first in (0, 1)]
    return {label: found[label] for label in labels} if any(starts) else {}


@lru_cache
def _column_label(name: str) -> str:
    match = _COLUMN.fullmatch(name)
    if match is None or (match[3] and not match[3].isupper()):
        return ""
    return str(match[match.lastindex or 0]).upper()


def unread_fields(record: Mapping[str, Any]) -> Iterator[str]:
    """The fields of which nothing is known, and which no prompt contains."""
    columns = set(choice_columns(record).values())
    return (n for n in record if _KNOWN.get(n.lower()) != n and n not in columns)
