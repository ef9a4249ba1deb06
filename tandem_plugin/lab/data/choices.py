"""The choices of a problem: their text in the prompt, and the letter of the right one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from tandem_plugin.grading.golds import is_present, read_golds
from tandem_plugin.lab.data.fields import (
    CHOICE_FIELDS,
    RowError,
    choice_columns,
    parsed,
)

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
REQUEST = "Answer with the letter of the right choice."
_LABELLED = re.compile(r"\s*\(?\s*([A-Za-z])\s*[).:]\s*(\S.*)", re.DOTALL)
"""A choice behind its letter, as in AQuA's ``A)21``."""
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_LABEL_NAMES = ("label", "key", "letter", "id", "index")
_TEXT_NAMES = ("text", "content", "value", "option", "choice", "answer")

Numbering: TypeAlias = Literal["text", "from 0", "from 1"]
"""What a number means: the text of a choice, or the place of one."""


class Numbered(NamedTuple):
    """An answer that is a number."""

    number: str
    is_text: bool
    """Whether it is written as text."""
    places: Mapping[Numbering, int]
    """The choices that it can mean."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of one problem, in order."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Their labels in the source, which its answer may name; empty if it has none."""

    def shown_after(self, question: str) -> str:
        """The question, its choices with letters, and the request for one of these.

        A question that lists its choices already stays as it is.
        """
        if self._are_listed_in(question):
            return question
        lines = [f"({LETTERS[place]}) {text}" for place, text in enumerate(self.texts)]
        return "\n".join([question.rstrip() + "\n", *lines, "", REQUEST])

    def _are_listed_in(self, question: str) -> bool:
        text = " ".join(question.split())
        start = 0
        for letter, choice in zip(LETTERS, self.texts, strict=False):
            listed = re.escape(" ".join(choice.split()))
            label = rf"\b{letter} ?[).:]\W{{0,4}}"  # A) 4, A. 4, \textbf{(A)}\ 4
            found = re.compile(rf"{label}{listed}(?!\w)").search(text, start)
            if found is None:
                return False
            start = found.end()
        return True

    def right(self, answer: str, is_text: bool = True) -> int | Numbered | None:
        """The place of the choice that an answer names: by its label, letter, number or text.

        is_text: whether a number is written as text. None if it names none; raises
        :class:`RowError` if it names two.
        """
        labels = [label.casefold() for label in self.labels]
        label = answer.strip("() .:").casefold()
        if labels.count(label) == 1:
            return labels.index(label)
        if answer.isascii() and answer.isdigit():
            places = self._numbered(answer)
            return Numbered(answer, is_text, places) if places else None
        letter, text = self._letter(answer), self._text(answer)
        if letter is not None and text is not None and letter != text:
            raise RowError(f"Its answer {answer!r} is one choice's letter and another's text.")
        return letter if text is None else text

    def _numbered(self, digits: str) -> dict[Numbering, int]:
        """The places that a number can mean."""
        number, text = int(digits[:9]), self._text(digits)
        found: dict[Numbering, int] = {} if text is None else {"text": text}
        if number < len(self.texts):
            found["from 0"] = number
        if 1 <= number <= len(self.texts):
            found["from 1"] = number - 1
        return found

    def _letter(self, answer: str) -> int | None:
        match = _LETTER.fullmatch(answer.strip())
        if match is None or self.labels:
            return self._labelled_text(answer)
        place = LETTERS.index(match[1].upper())
        return place if place < len(self.texts) else None

    def _labelled_text(self, answer: str) -> int | None:
        """The place of ``(B) 7``, if 7 is the second choice."""
        match = _LABELLED.fullmatch(answer)
        place = None if match is None else self._text(match[2])
        return place if match and place == LETTERS.index(match[1].upper()) else None

    def _text(self, answer: str) -> int | None:
        texts = [" ".join(text.split()) for text in self.texts]
        text = " ".join(answer.split())
        return texts.index(text) if texts.count(text) == 1 else None


class Numbers:
    """What the numbers of a set mean, which its rows decide together.

    A number is the text of a choice, or a place that counts from 0, as in MMLU, or from 1: whatever
    fits all rows. If several do, texts of digits are texts, and integers count from 0.
    """

    def __init__(self) -> None:
        self._fitting: set[Numbering] = {"text", "from 0", "from 1"}
        self._only_texts = True

    def add(self, answer: Numbered) -> None:
        """Take in a row; :class:`RowError` if no meaning fits both it and the rows before."""
        fitting = self._fitting & answer.places.keys()
        if not fitting:
            raise RowError(
                f"Its answer {answer.number} does not number the choices as the rows before do."
            )
        self._fitting = fitting
        self._only_texts &= answer.is_text

    def place(self, answer: Numbered) -> int:
        """The place that a row's number means; :class:`RowError` if it can mean two."""
        places = answer.places
        order: list[Numbering] = ["text", "from 0", "from 1"]
        if not self._only_texts:
            order = ["from 0", "text", "from 1"]
        first, *others = [meaning for meaning in order if meaning in self._fitting]
        if first == "from 0" and "text" in others and places[first] != places["text"]:
            raise RowError(f"Its answer {answer.number} is one choice's number and another's text.")
        return places[first]


def read_choices(record: Mapping[str, Any]) -> Choices | None:
    """The choices of a record, or None; :class:`RowError` for invalid ones."""
    columns = choice_columns(record)
    fields = [name for name in CHOICE_FIELDS if name in record]
    if len(fields) > 1 or (fields and columns):
        both = ", ".join([*fields, *columns.values()])
        raise RowError(f"It has several lists of choices: {both}. Keep one.")
    if columns:
        named = {label: record[name] for label, name in columns.items()}
        return _checked(named.values(), named, ", ".join(columns.values()))
    return _choices_of(fields[0], record[fields[0]]) if fields else None


def _choices_of(field: str, value: Any) -> Choices:
    """From a list of texts or of objects, from lists in an object, or from an object by label."""
    value = parsed(value)
    if isinstance(value, Mapping):
        lists = _lists(value)
        if lists is None:
            value = {label: text for label, text in value.items() if is_present(text)}
            return _checked(value.values(), value, field)
        return _checked(*lists, field)
    if not isinstance(value, list):
        raise RowError(
            f"Its {field} is neither a list of choices nor an object of labels and texts."
        )
    if value and all(isinstance(one, Mapping) for one in value):
        texts = [_first(one, _TEXT_NAMES) for one in value]
        labels = [_first(one, _LABEL_NAMES) for one in value]
        return _checked(texts, [] if None in labels else labels, field)
    return _checked(value, [], field)


def _lists(value: Mapping[str, Any]) -> tuple[list[Any], list[Any]] | None:
    """The texts and labels of ``{"text": [...], "label": [...]}``, as ARC has them."""
    texts, labels = (parsed(_first(value, names)) for names in (_TEXT_NAMES, _LABEL_NAMES))
    if not isinstance(texts, list):
        return None
    return texts, labels if isinstance(labels, list) else []


def _first(value: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _checked(texts: Iterable[Any], labels: Iterable[Any], field: str) -> Choices:
    shown = [_shown(text) for text in texts]
    own = [str(label).strip("() .:") for label in labels]
    if None in shown:
        raise RowError(f"A choice in its {field} is neither text nor a number.")
    if not 1 < len(shown) <= len(LETTERS) or (own and len(own) != len(shown)):
        raise RowError(
            f"Its {field} has {len(shown)} choices with {len(own) or len(shown)} labels."
        )
    choices = [text for text in shown if text is not None]
    letters = LETTERS[: len(choices)]
    labelled = [_LABELLED.fullmatch(text) for text in choices]
    if "".join(match[1].upper() for match in labelled if match) == letters:
        choices = [match[2] for match in labelled if match]
        own = own or list(letters)
    return Choices(tuple(choices), tuple(own))


def _shown(value: Any) -> str | None:
    """The text of a choice; a number as golds have it, so 7.0 is 7."""
    if isinstance(value, str):
        return value.strip() or None
    golds = read_golds(value) if isinstance(value, bool | int | float) else ""
    return golds[0] if isinstance(golds, tuple) else None
