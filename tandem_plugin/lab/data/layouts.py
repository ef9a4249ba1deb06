"""How the records of a data set become rows: by known names, by ``--field``, or by ``--map``."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeAlias

from tandem_plugin.errors import ConfigError, shown
from tandem_plugin.files import read_file
from tandem_plugin.grading.golds import ANSWER_FIELDS, answer_of, is_present, value_at
from tandem_plugin.lab.data.rows import NeedsAnswer, Row, RowError

QUESTION_FIELDS = ("problem", "question", "prompt", "messages", "input")
"""Where the rows of the schema, of public sets and of the trainers have their text or chat."""
IMAGE_FIELDS = ("images", "image")
"""Where verl, TRL and public sets have pictures."""
PARTS = ("problem", "messages", "answer", "choices", "images")
"""The parts of a row; ``messages`` is a problem that is a chat."""
_TRAINERS = ("data_source", "ability", "extra_info", "env_class", "datasource")
"""The trainers' columns besides prompt and answer."""
_PART_OF_PROBLEM = re.compile(
    r"context|passage|article|paragraph|document|story|premise|table|instruction|options"
    r"|system(?:_prompt|_message)?|tools|functions|history"
    r"|(?:\w+_)?(?:image|figure|diagram|audio|video)s?(?:_\w+)?",
    re.IGNORECASE,
)
"""Fields that may be part of the problem."""

_MOST = 200
"""Characters of the names of a record's fields in a message."""

Convert: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class LayoutError(RowError):
    """The names of a record's fields do not say what is asked, or what the answer is."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which fields of a data set's records are the parts of a row.

    Without ``fields`` and ``convert`` a record has its problem in one of ``QUESTION_FIELDS``, its
    answer in one of :data:`~tandem_plugin.grading.golds.ANSWER_FIELDS`, its choices, if any, in
    ``choices``, and its images in one of ``IMAGE_FIELDS``.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    """By the part of a row, the name of its field; a dot before what an object holds."""
    convert: Convert | None = None
    """From a record to a row's parts by name, or to None for a record that is left out."""
    source: str | None = None
    """``FILE:FUNCTION``, where ``convert`` comes from."""
    is_named: bool = False
    """Whether the first text and the answer are known to be the whole problem, whatever the other
    fields are called."""

    def row(self, record: Any, golds: NeedsAnswer = "required") -> Row | None:
        """The row of a record, or None if ``convert`` leaves it out.

        Raises :class:`RowError`, and :class:`LayoutError` if its fields are not known.
        """
        if isinstance(record, Exception):
            raise RowError(f"This is not JSON: {record}.") from record
        if not isinstance(record, Mapping):
            kind = type(record).__name__
            raise LayoutError(f"This is a {kind}, not an object with a problem and an answer.")
        if self.convert is not None:
            return self._converted(record)
        images = None if self.is_named else self._images(record)
        record = {name: value for name, value in record.items() if is_present(value)}
        question = self._question(record)
        name = self.fields.get("choices")
        choices = value_at(record, name) if name else record.get("choices")
        unread = self._unread(record)
        answer = answer_of(record, self.fields.get("answer"))
        if answer is None and golds == "required":
            looked = self.fields.get("answer") or f"any of {', '.join(ANSWER_FIELDS)}"
            raise LayoutError(f"It has no answer in {looked}.")
        return Row(question, answer, choices, unread, images)

    def record(self) -> dict[str, Any]:
        """What a manifest notes."""
        if self.source is None:
            return {"fields": dict(self.fields)} if self.fields else {}
        file = Path(self.source.rpartition(":")[0])
        digest = hashlib.sha256(read_file(file)).hexdigest()
        return {"map": {"function": f"{file.name}:{self.source.rpartition(':')[2]}",
                        "sha256": digest}}  # fmt: skip

    def _converted(self, record: Mapping[str, Any]) -> Row | None:
        assert self.convert is not None
        try:
            parts = self.convert(record)
        except Exception as error:  # whatever a user's function raises
            reason = f"{type(error).__name__}: {error}"
            raise RowError(f"{self.source} failed: {reason}".rstrip()) from error
        if parts is None:
            return None
        if not isinstance(parts, Mapping) or not set(parts) <= set(PARTS):
            raise RowError(
                f"{self.source} returned {shown(parts)}, not a dict of {', '.join(PARTS)}."
            )
        problems = [parts[name] for name in ("problem", "messages") if is_present(parts.get(name))]
        if len(problems) != 1:
            raise RowError(f"{self.source} returned not one of problem and messages.")
        answer, images = answer_of(parts, "answer"), parts.get("images")
        return Row(problems[0], answer, parts.get("choices"), images=images)

    def _images(self, record: Mapping[str, Any]) -> Any:
        """The pictures of a record: an empty list if its fields have none, None without a field."""
        if (name := self.fields.get("images")) is not None:
            value = value_at(record, name)
            return value if value is not None and is_present(value) else []
        fields = [name for name in IMAGE_FIELDS if name in record]
        values = [value for name in fields if is_present(value := record[name]) and value != 0]
        if len(values) > 1:
            raise LayoutError(f"Its {' and its '.join(fields)} both have pictures.")
        return values[0] if values else [] if fields else None

    def _question(self, record: Mapping[str, Any]) -> Any:
        field = self.fields.get("problem") or self.fields.get("messages")
        if field is not None:
            if (value := value_at(record, field)) is None:
                raise LayoutError(f"It has no problem in {field}.")
            return value
        questions = {name: record[name] for name in QUESTION_FIELDS if name in record}
        if not questions:
            looked, names = ", ".join(QUESTION_FIELDS), ", ".join(map(str, record)) or "no field"
            raise LayoutError(f"It has no problem in any of {looked}; it has {names[:_MOST]}.")
        first, *later_questions = questions
        if not self.is_named:
            _check_whole(record, first, later_questions, "images" not in self.fields)
        return questions[first]

    def _unread(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """The fields that no row is made of, the trainers' own aside."""
        if self.is_named:
            return ()
        names = {"problem": QUESTION_FIELDS, "answer": ANSWER_FIELDS, "choices": ("choices",),
                 "images": IMAGE_FIELDS}  # fmt: skip
        read = {"problem" if part == "messages" else part: (name,)
                for part, name in self.fields.items()}  # fmt: skip
        heads = {name.partition(".")[0] for part in (names | read).values() for name in part}
        return tuple(str(name) for name in record if name not in heads and name not in _TRAINERS)


def _check_whole(
    record: Mapping[str, Any], field: str, later_fields: Sequence[str], has_images: bool
) -> None:
    """Raise :class:`LayoutError` for a second problem, or a field that may belong to the first.

    has_images: whether the record's images are read from ``IMAGE_FIELDS``.
    """
    for name in later_fields:
        if _plain(record[field]) != _plain(record[name]):
            raise LayoutError(f"Its {field} and its {name} differ.")
    for name, value in record.items():
        is_read = has_images and name in IMAGE_FIELDS
        if _PART_OF_PROBLEM.fullmatch(str(name)) and value not in (0, False) and not is_read:
            raise LayoutError(f"Its field {name} may be part of the problem.")


def _plain(question: Any) -> Any:
    return question.strip() if isinstance(question, str) else question


def layout_of(fields: Sequence[str] = (), source: str | None = None) -> Layout:
    """The layout of ``--field PART=FIELD``, repeated, or of ``--map FILE:FUNCTION``.

    Raises :class:`ConfigError` for both, for a part that rows do not have, for one given twice, and
    for a function that cannot be loaded.
    """
    if fields and source is not None:
        raise ConfigError("layout-given-twice")
    parts: dict[str, str] = {}
    for assignment in fields:
        part, equals, name = assignment.partition("=")
        if not equals or not name or part not in PARTS or part in parts:
            valid, listed = {*PARTS} - {part}, ", ".join(PARTS)
            raise ConfigError.misspelt(
                "layout-field-invalid", part, valid, field=assignment, parts=listed
            )
        parts[part] = name
    if {"problem", "messages"} <= parts.keys():
        raise ConfigError(
            "layout-field-invalid", field=fields[-1], parts="problem or messages", meant=""
        )
    return Layout(parts) if source is None else Layout(convert=_loaded(source), source=source)


def _loaded(source: str) -> Convert:
    """The function of ``FILE:FUNCTION``."""
    file, _, name = source.rpartition(":")
    path = Path(file)
    if not path.is_file() or not name:
        raise ConfigError("layout-map-unusable", source=source, reason="there is no such file")
    spec = spec_from_file_location(f"tandem_map_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError("layout-map-unusable", source=source, reason="it is not a Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where its own dataclasses look it up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's file raises
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError("layout-map-unusable", source=source, reason=reason) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(
            "layout-map-unusable", source=source, reason=f"it has no function {name!r}"
        )
    convert: Convert = function
    return convert
