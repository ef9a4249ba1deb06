"""The answer of a response: what its last box holds. Linear in time, bounded in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Extraction", "extract_answer"]

Finding: TypeAlias = Literal["box", "no_box", "truncated_box", "empty_box"]

_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
"""A box, an escaped character, or a brace: no pattern can match one text in two ways."""
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"[^\s$]{1,4000}")
_OPENED_BY = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found at the end of a response."""

    finding: Finding
    answer: str | None = None
    """The box's content without the space around it; None unless ``finding`` is ``box``."""


def extract_answer(response: str, window_chars: int = 1_000_000) -> Extraction:
    r"""The content of the last ``\boxed{...}`` or ``\fbox{...}`` of a response.

    - Braces nest; ``\{`` and ``\}`` are no braces. Of boxes in boxes the outermost counts.
    - ``\boxed 5`` holds what follows up to the next space or dollar, without final punctuation.
    - A box that opens after the last closed one and never closes is truncated: no answer.
    - Only the last ``window_chars`` characters are searched.
    """
    text = response if len(response) <= window_chars else response[-window_chars:]
    places = [place for name in ("\\boxed", "\\fbox") if (place := text.find(name)) >= 0]
    return _last_box(text, min(places)) if places else Extraction("no_box")


def _last_box(text: str, start: int) -> Extraction:
    open_braces: list[int | None] = []  # for a brace that opens a box: where the box began
    open_boxes = 0
    seen, opening = -1, -1  # the box seen last, and the brace that belongs to it
    last: _Box | None = None
    cut = -1  # where a box without anything after it began
    for mark in _MARK.finditer(text, start):
        place = mark.start()
        kind = text[place]
        if kind == "{":
            belongs = place == opening
            open_braces.append(seen if belongs else None)
            open_boxes += belongs
        elif kind == "}":
            if open_braces and (began := open_braces.pop()) is not None:
                open_boxes -= 1
                last = _Box(began, text.find("{", began) + 1, place)
        elif mark.end() - place > 2:
            seen, after = place, _space_end(text, mark.end())
            if text[after : after + 1] == "{":
                opening = after
            elif after == len(text):
                cut = place
            elif not open_boxes:
                last = _Box(place, after, None)
    truncated = max(cut, next((began for began in reversed(open_braces) if began is not None), -1))
    if last is None or truncated > last.began:
        return Extraction("no_box" if truncated < 0 else "truncated_box")
    answer = _content(text, last)
    return Extraction("box", answer) if answer else Extraction("empty_box")


class _Box(NamedTuple):
    """A complete box: where its command, its content, and the rest begin."""

    began: int
    start: int
    stop: int | None
    """None for a box without braces."""


def _content(text: str, box: _Box) -> str:
    if box.stop is not None:
        return text[box.start : box.stop].strip()
    bare = _BARE.match(text, box.start)
    answer = bare.group().rstrip(".,;:") if bare else ""
    while answer[-1:] in _OPENED_BY and answer.count(answer[-1]) > answer.count(
        _OPENED_BY[answer[-1]]
    ):
        answer = answer[:-1]
    return answer


def _space_end(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start
