"""A row, which is one problem whatever its data set calls its parts, and the problem that it asks.

This is the one schema: a text or a chat, its right answer or answers, and its choices if it has
any. :mod:`tandem_plugin.lab.data.layouts` makes rows of the records of data sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tandem_plugin.errors import shown
from tandem_plugin.grading.golds import is_present, read_golds
from tandem_plugin.lab.data.pictures import PLACE, Picture, PictureError, read_picture
from tandem_plugin.lab.data.problem import SURROGATE, Message, Problem

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
REQUEST = "Answer with the letter of the right choice."
_HARMLESS = {"role", "content", "weight", "train", "loss", "id", "timestamp"}
"""The fields of a turn that no chat template needs."""
_NO_USER = ("system", "developer", "tool", "function")

NeedsAnswer: TypeAlias = Literal["required", "optional"]
"""Whether a row without an answer is invalid, or a problem without golds."""


class RowError(ValueError):
    """A row is not a problem that can be asked; the text gives the reason, in a sentence."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, unread."""

    problem: Any
    """A text, or a chat: a list of turns with ``role`` and ``content``, the last one the user's; an
    answer of the assistant behind it is left out."""
    answer: Any = None
    """What :func:`~tandem_plugin.grading.golds.read_golds` reads; with choices the letter of the
    right one, or the choice itself."""
    choices: Any = None
    """A list of texts or numbers, which the prompt shows behind letters."""
    unread: tuple[str, ...] = ()
    """The fields of its record that are in no part of it."""
    images: Any = None
    """One picture or a list of them, as :func:`~tandem_plugin.lab.data.pictures.read_picture` takes
    them, in the order of their places in the problem; None in a set of texts, where it has no
    places."""


def problem_of(
    number: int, row: Row, golds: NeedsAnswer = "required", folder: Path | None = None
) -> Problem:
    """The problem that a row asks; :class:`RowError` if it cannot be asked or graded as a whole.

    folder: where the relative paths of its images begin; None if it has no files.
    """
    turns, in_chat = _turns(row.problem)
    images = _placed(turns, row.images, in_chat, folder)
    choices = _choices(row.choices)
    question = turns[-1]["content"]
    if choices:
        question = _with_choices(question, choices)
    is_text = isinstance(row.problem, str)
    turns[-1]["content"] = question.strip() if is_text else question
    answers = _golds(row.answer, choices, golds)
    _check_text(turns, answers)
    return Problem(number, tuple(turns), answers, question if is_text else None, images)


def _turns(problem: Any) -> tuple[list[Message], list[Any]]:
    """The chat up to the user's last turn, and its images; a text is the user's.

    An image is None if its place stands in the chat and the picture elsewhere.
    """
    problem = {"role": "user", "content": problem} if isinstance(problem, str) else problem
    turns = problem if isinstance(problem, list | tuple) else [problem]
    while turns and isinstance(turns[-1], Mapping) and turns[-1].get("role") == "assistant":
        turns = turns[:-1]
    images: list[Any] = []
    chat = [_turn(turn, images) for turn in turns]
    if not chat or not chat[-1]["content"].strip() or chat[-1]["role"] in _NO_USER:
        raise RowError("Its problem does not end with a user turn.")
    return chat, images


def _turn(turn: Any, images: list[Any]) -> Message:
    """A turn as text; the images of its parts are appended to ``images``."""
    role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, Mapping) else (0, 0)
    if isinstance(content, list | tuple):
        content = "".join(_part(part, images) for part in content)
    if not isinstance(role, str) or not isinstance(content, str):
        raise RowError("Its problem is neither text nor chat messages with role and content.")
    extras = [str(name) for name in turn if name not in _HARMLESS and is_present(turn[name])]
    if extras:
        raise RowError(f"A turn of its chat has {', '.join(extras)}, which is not read.")
    return {"role": role, "content": content}


def _part(part: Any, images: list[Any]) -> str:
    """The text of one part of a turn's content; an image is appended to ``images``."""
    kind, text = (part.get("type"), part.get("text")) if isinstance(part, Mapping) else (None, None)
    if kind in ("image", "image_url"):
        images.append(_in_part(part))
        return PLACE
    if kind != "text" or not isinstance(text, str):
        raise RowError(f"Its chat has a part of type {kind}, which cannot be in a prompt.")
    return text


def _in_part(part: Mapping[str, Any]) -> Any:
    """The picture of an image's part, in the forms of OpenAI's API and of processors; None without.

    A data set without such columns has None for the fields of other kinds of parts.
    """
    url = part.get("image_url")
    values = (part.get("image"), url.get("url") if isinstance(url, Mapping) else url)
    return next((value for value in values if value is not None), None)


def _placed(
    turns: list[Message], column: Any, in_chat: Sequence[Any], folder: Path | None
) -> tuple[Picture, ...]:
    """The pictures of a row; each has a place in the turns.

    Without any place they stand before the first user turn, as TRL puts them.
    """
    if column is None and not in_chat:
        return ()
    filled = [value for value in in_chat if value is not None]
    values = _column(column)
    if filled and (values or len(filled) < len(in_chat)):
        raise RowError("Its images are not all in its chat, or also in a field of their own.")
    pictures = [_picture(n, value, folder) for n, value in enumerate(filled or values, 1)]
    places = sum(turn["content"].count(PLACE) for turn in turns)
    if pictures and not places:
        first = next((turn for turn in turns if turn["role"] == "user"), turns[-1])
        first["content"] = PLACE * len(pictures) + first["content"]
        return tuple(pictures)
    if places != len(pictures):
        raise RowError(f"It has {PLACE} {places} times, and {len(pictures)} images.")
    return tuple(pictures)


def _column(column: Any) -> list[Any]:
    """The values of a field of images; a lone picture is one."""
    if column is None or not is_present(column):
        return []
    return list(column) if isinstance(column, list | tuple) else [column]


def _picture(number: int, value: Any, folder: Path | None) -> Picture:
    try:
        return read_picture(value, folder)
    except PictureError as error:
        raise RowError(f"Its image {number} {error}") from error


def _choices(choices: Any) -> list[Any]:
    if choices is None:
        return []
    texts = [choice.strip() if isinstance(choice, str) else choice for choice in _list(choices)]
    are_shown = all(isinstance(text, str | int | float) and _is_shown(text) for text in texts)
    if not are_shown or not 1 < len(texts) <= len(LETTERS):
        raise RowError(f"Its choices are not a list of 2 to {len(LETTERS)} texts or numbers.")
    return texts


def _is_shown(text: str | float) -> bool:
    """Neither blank nor NaN."""
    return bool(text) if isinstance(text, str) else not isnan(text)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _with_choices(question: str, choices: Sequence[Any]) -> str:
    """The question, its choices behind letters, and the request for one of these."""
    lines = [f"({LETTERS[place]}) {choice}" for place, choice in enumerate(choices)]
    return "\n".join([question.rstrip() + "\n", *lines, "", REQUEST])


def _golds(answer: Any, choices: Sequence[Any], golds: NeedsAnswer) -> tuple[str, ...]:
    if answer is None:
        if golds == "required":
            raise RowError("It has no answer.")
        return ()
    texts = read_golds(answer)
    if isinstance(texts, str):
        raise RowError(texts)
    return (_letter(answer, texts, choices),) if choices else texts


def _letter(answer: Any, texts: Sequence[str], choices: Sequence[Any]) -> str:
    """The letter of the choice that an answer is, or whose letter it is."""
    name = texts[0] if isinstance(answer, str) else answer
    letters = [
        letter
        for letter, choice in zip(LETTERS, choices, strict=False)
        if name == letter or (name == choice and not isinstance(name, bool))
    ]
    if len(letters) != 1:
        how = "neither the letter nor the text of one of" if not letters else "more than one of"
        raise RowError(f"Its answer {shown(answer)} is {how} its choices.")
    return letters[0]


def _check_text(turns: Iterable[Message], golds: Iterable[str]) -> None:
    """Raise for half a character, which JSON can contain, but no tokenizer and no file."""
    texts = [("prompt", turn[part]) for turn in turns for part in turn]
    for part_name, text in (*texts, *(("answer", gold) for gold in golds)):
        if half := SURROGATE.search(text):
            code = f"\\u{ord(half[0]):04x}"
            raise RowError(
                f"Its {part_name} contains the lone surrogate {code}, half of a character."
            )
