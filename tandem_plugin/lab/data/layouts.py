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
from tandem_plugin.grading.golds import ANSWER_FIELDS, present_values
from tandem_plugin.lab.data.rows import NeedsAnswer, Row, RowError

QUESTION_FIELDS = ("problem", "question", "prompt", "messages", "input")
"""Where the rows of the schema, of public sets and of the trainers have their text or chat."""
IMAGE_FIELDS = ("images", "image")
"""Where verl, TRL and public sets have pictures."""
_PARTS_FROM = {
    "problem": QUESTION_FIELDS,
    "answer": ANSWER_FIELDS,
    "choices": ("choices",),
    "images": IMAGE_FIELDS,
}
_UNREAD = "unread"
"""In place of a part: the fields that no part is made of."""
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
        parts = _PARTS_FROM | {_part(name): (field,) for name, field in self.fields.items()}
        read = {field.partition(".")[0] for fields in parts.values() for field in fields}
        unread = () if self.is_named else tuple(name for name in record if name not in read)
        values = present_values(record, {**parts, _UNREAD: unread})
        images = None if self.is_named else self._images(record, values["images"])
        question, answer = self._question(parts, values), _first(values["answer"])
        if answer is None and golds == "required":
            raise LayoutError(f"It has no answer in {_any_of(parts['answer'])}.")
        unread_names = tuple(str(name) for name in values[_UNREAD] if name not in _TRAINERS)
        return Row(question, answer, _first(values["choices"]), unread_names, images)

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
        fields = {"problem": ("problem", "messages"), "answer": ("answer",)}
        values = present_values(parts, fields)
        if len(values["problem"]) != 1:
            raise RowError(f"{self.source} returned not one of problem and messages.")
        question, answer = _first(values["problem"]), _first(values["answer"])
        return Row(question, answer, parts.get("choices"), images=parts.get("images"))

    def _images(self, record: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """The pictures of a record: an empty list if its fields have none, None without a field."""
        if "images" in self.fields:
            return _first(values) or []
        pictures = {name: value for name, value in values.items() if value != 0}
        if len(pictures) > 1:
            raise LayoutError(f"Its {' and its '.join(pictures)} both have pictures.")
        has_field = any(name in record for name in IMAGE_FIELDS)
        return _first(pictures) if pictures else [] if has_field else None

    def _question(
        self, parts: Mapping[str, Sequence[str]], values: Mapping[str, Mapping[str, Any]]
    ) -> Any:
        """The only problem of a record; no other field may be a part of it.

        parts: the fields where each part may be. values: those that are present.
        """
        is_given = "problem" in map(_part, self.fields)
        if not values["problem"]:
            names = ", ".join(str(name) for fields in values.values() for name in fields)
            has = "" if is_given else f"; it has {names[:_MOST] or 'no field'}"
            raise LayoutError(f"It has no problem in {_any_of(parts['problem'])}{has}.")
        (first, question), *alternatives = values["problem"].items()
        if is_given or self.is_named:
            return question
        for name, alternative in alternatives:
            if _plain(question) != _plain(alternative):
                raise LayoutError(f"Its {first} and its {name} differ.")
        for name, value in values[_UNREAD].items():
            if _PART_OF_PROBLEM.fullmatch(str(name)) and value not in (0, False):
                raise LayoutError(f"Its field {name} may be part of the problem.")
        return question


def _part(name: str) -> str:
    """The part of a row that an option names."""
    return "problem" if name == "messages" else name


def _first(values: Mapping[str, Any]) -> Any:
    return next(iter(values.values()), None)


def _any_of(fields: Sequence[str]) -> str:
    return fields[0] if len(fields) == 1 else f"any of {', '.join(fields)}"


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
