"""The answer in the last box of a response."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tandem_plugin.grading.spelling import CONJUNCTIONS

Finding: TypeAlias = Literal["box", "no_box", "truncated_box", "empty_box"]

_MARK = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
"""A box, an escaped character, or a brace: no pattern can match one text in two ways."""
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"[-+]?[\d.]|\\(?!boxed|fbox)[A-Za-z]|[A-Za-z](?![^\s$.,;:)])")
"""How the content of a box without braces begins, unlike a word of a sentence about boxes."""
_BARE_CONTENT = re.compile(r"[^\s$]{1,4000}")
_GAP = r"(?:[\s$,;.&]|\\[()\[\],;: ]|\\q?quad(?![A-Za-z]))*"
_JOINING = "|".join(" ".join(CONJUNCTIONS.values()).split())
_BETWEEN = re.compile(
    rf"{_GAP}(?:(?:,|(?:\\text ?\{{)?(?:[A-Za-z() ,]{{0,24}}\b(?:and|or)\b| ?(?:{_JOINING})) ?\}}?)"
    rf"{_GAP}"
    rf"(?:[A-Za-z](?:_\w|_\{{\w{{1,9}}\}})? ?= ?)?)?"
)
"""What joins two boxes to one list: ``, y =``, or a few words that end in ``and`` or ``or``."""
_PART = re.compile(
    r"[\s$,;.&#]*[*_]{0,2}(?:[Pp]art ?)?(?<![A-Za-z0-9])"
    r"(?:\(?([a-h]|[ivx]{1,4}|[1-9]|(?:(?<=[Pp]art )|(?<=[Pp]art \())[A-H])[).:]+|[-*\u2022](?= ))"
    r"[\s*_:]*(?:(?:[Tt]he )?[Aa]nswer(?: is)?:? ?)?[\s$*]*\Z"
)
"""What stands before the box of a part: ``(b)``, ``2.``, ``Part b:``, a bullet."""
_LETTERS = "abcdefgh"
_LABELS = ("a b c d e f g h", "1 2 3 4 5 6 7 8", "i ii iii iv v vi vii viii")
_ESCAPED_END = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]{1,4000})\\\}")
"""A box without braces in it whose closing brace was escaped: it has no other meaning there."""
_OPENED_BY = {")": "(", "]": "[", "}": "{"}
_WINDOW = 1_000_000
_MAX_BETWEEN = 60
_MAX_JOINED = 64


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found at the end of a response."""

    finding: Finding
    answer: str | None = None
    """The box's content without the space around it; None unless ``finding`` is ``box``."""


class _Box(NamedTuple):
    """Where a complete box begins, and its content begins and ends; -1 for one without braces."""

    began: int
    start: int
    stop: int


def extract_answer(response: str) -> Extraction:
    r"""The content of the last ``\boxed{...}`` or ``\fbox{...}`` of a response.

    - Braces nest; ``\{`` and ``\}`` are no braces. Of nested boxes the outermost counts.
    - Boxes form one list if only punctuation separates them, or a few words that end in ``and`` or
      ``or``, and the name of the next one's value.
    - ``\boxed 5`` holds what follows up to the next space or dollar. A ``\boxed`` before a word of
      a sentence, or an empty one, does not override an earlier box.
    - A box that never closes is truncated, no answer, unless it ends in ``\}``.
    - Only the last million characters are searched, in linear time.
    """
    text = response[-_WINDOW:]
    places = [place for name in ("\\boxed", "\\fbox") if (place := text.find(name)) >= 0]
    if not places:
        return Extraction("no_box")
    boxes, truncated = _boxes(text, min(places))
    if truncated > (boxes[-1].began if boxes else -1):
        if (escaped := _ESCAPED_END.match(text, truncated)) is None:
            return Extraction("truncated_box")
        boxes.append(_Box(truncated, *escaped.span(1)))
    full = [box for box in boxes if box.stop < 0 or _space_end(text, box.start) < box.stop]
    if not full:
        return Extraction("empty_box" if boxes else "no_box")
    return Extraction("box", _joined(text, full))


def _boxes(text: str, start: int) -> tuple[list[_Box], int]:
    """The closed boxes that are in no other, and where a box opened that never closed, or -1."""
    open_braces: list[int | None] = []  # for a brace that opens a box: where the box began
    open_boxes = 0
    seen, opening = -1, -1  # the box seen last, and the brace that belongs to it
    boxes: list[_Box] = []
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
                while boxes and boxes[-1].began > began:
                    boxes.pop()
                boxes.append(_Box(began, text.find("{", began) + 1, place))
        elif mark.end() - place > 2:
            seen, after = place, _space_end(text, mark.end())
            if text[after : after + 1] == "{":
                opening = after
            elif after == len(text):
                cut = place
            elif not open_boxes and _BARE.match(text, after):
                boxes.append(_Box(place, after, -1))
    truncated = max(cut, next((began for began in reversed(open_braces) if began is not None), -1))
    return boxes, truncated


def _joined(text: str, boxes: list[_Box]) -> str:
    """The content of the last box, or of the last boxes that make one list."""
    if boxes[-1].stop < 0:
        return _stripped(_BARE_CONTENT.match(text, boxes[-1].start))
    if (parts := _parts(text, boxes)) is not None:
        return parts
    first = len(boxes) - 1
    while first > 0 and len(boxes) - first < _MAX_JOINED and boxes[first - 1].stop >= 0:
        end = boxes[first - 1].stop + 1
        is_near = boxes[first].began - end <= _MAX_BETWEEN
        if not is_near or not _BETWEEN.fullmatch(text, end, boxes[first].began):
            break
        first -= 1
    return ", ".join(dict.fromkeys(text[box.start : box.stop].strip() for box in boxes[first:]))


def _parts(text: str, boxes: list[_Box]) -> str | None:
    """The last boxes as one list, if each has the label of the next part or a bullet, or None."""
    contents: list[str] = []
    labels: list[str | None] = []
    for n in range(len(boxes) - 1, max(-1, len(boxes) - 1 - len(_LETTERS)), -1):
        behind = boxes[n - 1].stop + 1 if n else 0
        near = max(behind, boxes[n].began - _MAX_BETWEEN)
        match = None if boxes[n].stop < 0 else _PART.search(text, near, boxes[n].began)
        if match is None:
            break
        labels.insert(0, match[1] and match[1].lower())
        contents.insert(0, text[boxes[n].start : boxes[n].stop].strip())
        if labels[0] in ("a", "1", "i") or match.start() > behind:
            break
    if len(labels) < 2:
        return None
    if not any(labels):
        return ", ".join(dict.fromkeys(contents))
    if not any(labels == row.split()[: len(labels)] for row in _LABELS):
        return None
    return ", ".join(
        f"({part}) {content}" for part, content in zip(_LETTERS, contents, strict=False)
    )


def _stripped(bare: re.Match[str] | None) -> str:
    """Without final punctuation and brackets that opened before the box."""
    answer = bare.group().rstrip(".,;:") if bare else ""
    while answer[-1:] in _OPENED_BY and answer.count(answer[-1]) > answer.count(
        _OPENED_BY[answer[-1]]
    ):
        answer = answer[:-1]
    return answer


def _space_end(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start
