"""The gold answers of a problem: where a row has them, and how they are read.

Every door uses this reader: the rewards of all trainers, ``Grader``, evaluations and
``tandem data prepare``. What it has read it reads again as the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Rational
from typing import Any, NamedTuple

from tandem_plugin.errors import shown
from tandem_plugin.grading.extraction import extract_answer
from tandem_plugin.grading.generated import is_generated

ANSWER_FIELDS = (
    "reward_model.ground_truth",  # verl
    "reward_spec.ground_truth",  # SkyRL
    "answer",
    "ground_truth",
    "label",  # OpenRLHF
    "solution",  # TRL; a worked one is read as the answer that it marks
)
"""Where the rows of data sets have their answers, the first that holds something first."""

_MARK = "####"
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_TAGGED = re.compile(r"<answer>([^<>]{1,4000})</answer>", re.IGNORECASE)
_STATED = re.compile(
    r"(?:^[*_# >]{0,8}|\b(?:the|final|correct|our|my) )answer[* ]*(?:is\b:?|[:=])[* ]*",
    re.IGNORECASE | re.MULTILINE,
)
_LABELLED = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mathbf|bf) ?\{ ?|\{ ?\\(?:bf|rm) ?)?"  # \textbf{(A)}\ 5
    r"(?:\(?(?P<letter>[A-J])\)\.?|(?P<before>[A-J])[.:](?=[ }~\\]*[-+$\\\d]))"
    r" ?\}?(?:[ ~$]|\\[ ,;:]|\\q?quad(?![A-Za-z]))*(?P<content>\S.*)"
)
_OTHER_LETTER = re.compile(r"(?<![A-Za-z\\])[A-J](?![A-Za-z])")
_LABEL = re.compile(r"(?<![A-Za-z])[A-J]\)")
_NAMED_LETTER = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mathbf) ?\{ ?|\{ ?\\(?:bf|rm) ?)?(?:[Oo]ption |[Cc]hoice )?"
    r"\(?([A-J]) ?\}?[).:][).:} ~]*(?:(?<=[ ~}])|(?=[\\$]))([^ }].*)"
)
"""The letter that an answer to a choice begins with, whatever follows it."""
_LETTER = re.compile(
    r"(?:\\(?:text|textbf|mathrm|mathbf) ?\{ ?)?(?:[Oo]ption|[Cc]hoice) \(?([A-J])\)?\.? ?\}?"
)
"""A choice that is named by its letter."""
_MAX_DIGITS = 1_000
_PLACEHOLDERS = ("nan", "<na>", "n/a", "null", "?", "-", "tbd")


def answer_of(record: Mapping[str, Any], field: str | None = None) -> Any:
    """The answers of a data set's row, unread; None if it has none.

    field: where they are, with a dot before what an object holds; None looks in ``ANSWER_FIELDS``.
    """
    values = present_values(record, {"answer": [field] if field else ANSWER_FIELDS})
    return next(iter(values["answer"].values()), None)


def present_values(
    record: Mapping[str, Any], fields: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, Any]]:
    """The values that a record has in some fields, by name, in their order.

    fields: by the part of a problem that they may hold; a dot stands before what an object holds.
    """
    return {
        part: {name: value for name in names if is_present(value := _value_at(record, name))}
        for part, names in fields.items()
    }


def _value_at(record: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or of ``outer.inner``; None where it is missing."""
    if path in record:
        return record[path]
    outer, _, inner = path.partition(".")
    value = record.get(outer) if inner else None
    return _value_at(value, inner) if isinstance(value, Mapping) else None


def is_present(value: Any) -> bool:
    """Neither absent, nor blank, nor the NaN that marks absence in a table."""
    if isinstance(value, float | Decimal):
        return not (value.is_nan() if isinstance(value, Decimal) else math.isnan(value))
    if getattr(value, "shape", None) == ():
        return is_present(value.tolist())
    if hasattr(value, "__len__"):
        return len(value) > 0 and not (isinstance(value, str) and not value.strip())
    return value is not None


def read_golds(value: object) -> tuple[str, ...] | str:
    """Every acceptable answer as text, or a sentence with the reason why there is none.

    value: a string, a number (27.0 is ``27``) or a truth value, or a list, tuple or array of those.
    Only such a list has several acceptable answers, never a text that looks like one. A text that
    marks its final answer is read as that answer: :func:`final_answer`.
    """
    golds: list[str] = []
    for item in _listed(value):
        texts = _texts(item)
        if isinstance(texts, str):
            return texts
        golds += (text for text in texts if text not in golds)
    return tuple(golds) if golds else "There is no gold answer to compare with."


def final_answer(text: str) -> str | None:
    """The answer that a worked solution marks as its final one, or None.

    That is what its last ``<answer>`` tag has; what follows the last ``####`` on its line, as in
    GSM8K, without commas between thousands; what its last box has; or what its last sentence
    states as the answer.
    """
    if tagged := _TAGGED.findall(text):
        inner: str = tagged[-1].strip()
        return final_answer(inner) or inner or None
    behind = text.rpartition(_MARK)[2].strip() if _MARK in text else ""
    if behind and "\n" not in behind:
        plain = behind.replace(",", "") if _THOUSANDS.fullmatch(behind) else behind
        return final_answer(plain) or plain
    return extract_answer(text).answer or _stated(text)


def _stated(text: str) -> str | None:
    """5, where the last line is ``The answer is 5.``"""
    places = [match.end() for match in _STATED.finditer(text)]
    stated = text[places[-1] :].strip() if places else ""
    return None if "\n" in stated else stated.rstrip(".* ") or None


def readings(gold: str) -> tuple[str, ...]:
    """A gold as it is written, and its other readings.

    ``A) 5`` is also its letter and its content; a JSON list of texts is also a list of answers, and
    a response must have all.
    """
    if (option := labelled(gold)) is not None:
        return option
    if gold.startswith('["') and (texts := _texts_in_json(gold)):
        return (gold, ", ".join(texts))
    return (gold,)


class Labelled(NamedTuple):
    """An answer with the letter of its choice: ``A) 5``."""

    letter: str
    content: str


def labelled(text: str) -> Labelled | None:
    r"""``A) 5``, ``(A) 5``, ``A. 5`` or ``\textbf{(A)}\ 5`` as its letter and content, or None."""
    bare = text[1:-1] if text[:1] == text[-1:] == "$" else text
    match = _LABELLED.fullmatch(bare.strip())
    if match is None or _LABEL.search(match["content"]):  # several choices: A) 5, B) 6
        return None
    content: str = match["content"]
    if content.endswith("}") and content.count("}") > content.count("{"):  # of the label's group
        content = content[:-1]
    return Labelled(match["letter"] or match["before"], content) if content else None


def compared(gold: str, answer: str) -> list[tuple[str, str]]:
    """Pairs of texts: an answer is a gold if one pair is equal.

    Where both have the letter of a choice and its content, letters that differ decide; where one
    has both, the other is compared with what it is.
    """
    gold, answer = _letter(gold), _letter(answer)
    option, choice = labelled(gold), labelled(answer)
    if option is not None and choice is not None:
        return [(option.content, choice.content)] if option.letter == choice.letter else []
    letter = re.fullmatch(r"\(?([A-J])\)?", gold)
    if letter is not None and (match := _NAMED_LETTER.fullmatch(answer)):
        return [] if _OTHER_LETTER.search(match[2]) else [(letter[1], match[1])]
    content = choice.content if choice is not None and _is_apart(answer) else answer
    return [(text, content) for text in readings(gold)]


def _letter(text: str) -> str:
    """``Option C`` or ``\\text{Choice (C)}`` as C; any other text as it is."""
    match = _LETTER.fullmatch(text)
    return text if match is None else match[1]


def _is_apart(answer: str) -> bool:
    """Whether a label is no factor of what follows it: ``(A)x`` and ``(A)-3`` may be products."""
    return re.match(r" ?\(?[A-J]\)[^ ~\\$]", answer) is None


def _texts_in_json(text: str) -> list[str]:
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    is_texts = isinstance(listed, list) and all(isinstance(item, str) for item in listed)
    return listed if is_texts else []


def _listed(value: Any) -> list[Any]:
    value = _plain(value)
    return list(value) if isinstance(value, list | tuple) else [value]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _texts(value: Any) -> tuple[str, ...] | str:
    """The texts that one gold means, or a sentence with the reason why it means none."""
    value = _plain(value)
    if isinstance(value, bool):
        return ("Yes", "True") if value else ("No", "False")
    if isinstance(value, str):
        return _text(value)
    try:
        if isinstance(value, float | Decimal):
            return (_decimal(value),)
        if isinstance(value, Rational):
            return (str(value),)
    except (ArithmeticError, ValueError):  # not finite, or of more digits than Python writes
        return f"A gold answer must be text or a finite number, not {shown(value)}."
    return f"A gold answer must be text or a number, not {type(value).__name__}."


def _text(value: str) -> tuple[str, ...] | str:
    if is_generated(value):
        return (value,)
    text = final_answer(value) or value.strip()
    if text.casefold() in _PLACEHOLDERS:
        return f"A gold answer must be text or a finite number, not {text}."
    return (text,) if text else "A gold answer is empty."


def _decimal(value: float | Decimal) -> str:
    """27.0 as 27. Raises what Python does for a value without a whole part."""
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _MAX_DIGITS:
        raise ValueError
    integer = int(value)
    if value == integer and abs(integer) < 2**53:
        return str(integer)
    return format(value, "f") if isinstance(value, Decimal) else repr(value)
