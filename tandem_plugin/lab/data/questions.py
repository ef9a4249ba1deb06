"""What a record asks: its text or chat, with everything beside it that belongs to the problem."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tandem_plugin.grading.golds import is_present
from tandem_plugin.lab.data.choices import Choices, read_choices
from tandem_plugin.lab.data.fields import (
    CONTEXT_FIELDS,
    INSTRUCTION_FIELD,
    SYSTEM_FIELDS,
    TEXT_FIELDS,
    RowError,
    parsed,
    unreadable_field,
)
from tandem_plugin.lab.data.instructions import says_how_to_answer
from tandem_plugin.lab.data.problem import Message

_HARMLESS = {"role", "content", "weight", "train", "loss", "id", "timestamp"}
"""The fields of a turn that no chat template needs."""
_CHAT = re.compile(r"\s*\[?\s*\{\s*['\"](?:role|content)['\"]\s*:")
"""How messages begin that were written into a text."""
_NO_USER = ("system", "developer", "tool", "function")


class Question(NamedTuple):
    """What a record asks."""

    messages: tuple[Message, ...]
    raw: str | None
    """The text as its record has it, white space included; None for a chat."""
    choices: Choices | None


def read_question(record: Mapping[str, Any]) -> Question:
    """The question of a record; :class:`RowError` if it cannot be asked as a whole.

    The prompt has, in this order, the system message as such, the instruction, the context, the
    text, and the choices with letters. record: as :func:`named_fields` reads it.
    """
    if unreadable := unreadable_field(record):
        raise RowError(
            f"Its field {unreadable} is part of the problem, but cannot be in a text prompt."
        )
    field, turns = _asked(record)
    choices = read_choices(record)
    text = "\n\n".join([*_before(record, field, turns), turns[-1]["content"]])
    if choices is not None:
        text = choices.shown_after(text)
    is_text = isinstance(record[field], str) and len(turns) == 1
    turns[-1]["content"] = text.strip() if is_text else text
    system = _system(record, turns)
    return Question((*system, *turns), text if is_text and not system else None, choices)


def _asked(record: Mapping[str, Any]) -> tuple[str, list[Message]]:
    """The field with the problem, and its chat; of several fields that agree, the longest chat."""
    fields = [name for name in TEXT_FIELDS if name in record]
    if not fields and INSTRUCTION_FIELD in record:
        fields = [INSTRUCTION_FIELD]
    if not fields:
        looked = ", ".join(TEXT_FIELDS)
        raise RowError(f"It has no text in any of {looked}; it has {_listed(record)}.")
    chats = {name: _chat(name, record[name]) for name in fields}
    first, *others = fields
    for other in others:
        if _plain(chats[first][-1]["content"]) != _plain(chats[other][-1]["content"]):
            raise RowError(f"Its {first} and its {other} ask different things. Keep one of them.")
    field = max(fields, key=lambda name: len(chats[name]))
    return field, chats[field]


def _plain(text: str) -> str:
    """What a text asks, whatever its spaces, its case and how it wants the answer."""
    kept = [line for line in text.splitlines() if not says_how_to_answer(line)]
    plain = unicodedata.normalize("NFKC", "".join(("".join(kept).strip() or text).split()))
    return plain.casefold().rstrip(".?!")


def _listed(record: Mapping[str, Any]) -> str:
    return ", ".join(record) or "no field"


def _chat(field: str, value: Any) -> list[Message]:
    """The turns of a field up to the user's last one; a text is the user's."""
    if isinstance(value, str) and not _CHAT.match(value):
        return [{"role": "user", "content": value}]
    turns = parsed(value)
    turns = [turns] if isinstance(turns, Mapping) else turns
    if not isinstance(turns, list | tuple) or not all(isinstance(one, Mapping) for one in turns):
        raise RowError(f"Its {field} is neither text nor chat messages with role and content.")
    while turns and turns[-1].get("role") == "assistant":
        turns = turns[:-1]
    chat = [_turn(field, turn) for turn in turns]
    if not chat or not chat[-1]["content"].strip() or chat[-1]["role"] in _NO_USER:
        raise RowError(f"Its {field} does not end with a user turn.")
    return chat


def _turn(field: str, turn: Mapping[str, Any]) -> Message:
    role, content = turn.get("role"), turn.get("content")
    if isinstance(content, list | tuple):
        content = _joined(field, content)
    if not isinstance(role, str) or not isinstance(content, str):
        raise RowError(f"Its {field} is neither text nor chat messages with role and content.")
    if more := [name for name in turn if name not in _HARMLESS and is_present(turn[name])]:
        raise RowError(f"A turn of its {field} has {', '.join(map(str, more))}, which is not read.")
    return {"role": role, "content": content}


def _joined(field: str, parts: Sequence[Any]) -> str:
    """The text of a turn whose content is a list of parts."""
    texts: list[str] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(text, str):
            raise RowError(
                f"Its {field} has a part of type {kind}, which cannot be in a text prompt."
            )
        texts.append(text)
    return "".join(texts)


def _before(record: Mapping[str, Any], field: str, turns: Sequence[Message]) -> list[str]:
    """The instruction and the context, as far as the chat does not have them."""
    names = [name for name in (INSTRUCTION_FIELD, *CONTEXT_FIELDS) if name in record]
    parts = [_part(name, record[name]) for name in names if name != field]
    if not parts:
        return []
    has = " ".join(" ".join(turn["content"] for turn in turns).split())
    return [part for part in parts if " ".join(part.split()) not in has]


def _part(field: str, value: Any) -> str:
    value = value.tolist() if hasattr(value, "tolist") else value
    texts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise RowError(f"Its field {field} is part of the problem, but is not text.")
    return "\n\n".join(text.strip() for text in texts)


def _system(record: Mapping[str, Any], turns: Sequence[Message]) -> list[Message]:
    """The system message that the chat does not have yet."""
    texts = {_part(name, record[name]): name for name in SYSTEM_FIELDS if name in record}
    own = [turn["content"].strip() for turn in turns if turn["role"] == "system"]
    if len({*texts, *own}) > 1 and texts:
        raise RowError(
            f"Its {' and '.join(texts.values())} is not the only system message. Keep one."
        )
    return [{"role": "system", "content": text} for text in texts if text not in own]
