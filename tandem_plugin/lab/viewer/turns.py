"""What was asked, as the turns of a chat where it is one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["turns_of"]

_ROLES = "system|developer|user|assistant|tool"
_CHATML = re.compile(rf"<\|im_start\|>({_ROLES})\n")
_BARE = re.compile(rf"^({_ROLES})\n", re.MULTILINE)
_ANSWER = re.compile(r"(?:^|\n)assistant\n(?:<think>\s*)?\Z")


def turns_of(prompt: str | list[Any]) -> list[tuple[str, str]]:
    """(role, text) of each turn; the role is empty for a text that is no chat.

    A trainer's dump has a chat as text: with ChatML's marks, or, where special tokens were left
    out, with each role on a line of its own before its turn and the assistant's at the end.
    """
    if isinstance(prompt, list):
        return [_turn(one) for one in prompt]
    if _CHATML.match(prompt):
        return list(_cut(prompt, _CHATML, "<|im_end|>"))
    if _BARE.match(prompt) and _ANSWER.search(prompt):
        return list(_cut(prompt, _BARE, ""))
    return [("", prompt)] if prompt else []


def _turn(turn: object) -> tuple[str, str]:
    if isinstance(turn, Mapping) and isinstance(turn.get("content"), str):
        return str(turn.get("role", ""))[:40], turn["content"]
    return "", json.dumps(turn, ensure_ascii=False, indent=1)


def _cut(prompt: str, begins: re.Pattern[str], end: str) -> Iterator[tuple[str, str]]:
    """The turns of a text; the last, in which the response begins, only where it says a word."""
    found = list(begins.finditer(prompt))
    for match, following in zip(found, [*found[1:], None], strict=True):
        text = prompt[match.end() : following.start() if following else None]
        text = text.removesuffix("\n").removesuffix(end) if end else text.removesuffix("\n")
        if text or following:
            yield match[1], text
