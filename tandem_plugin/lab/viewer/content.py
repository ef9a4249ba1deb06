"""What a page holds: an index of responses, and their texts in parts that are read on demand."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem_plugin.lab.viewer.listing import Listed, Listing
from tandem_plugin.lab.viewer.responses import ViewedResponse
from tandem_plugin.lab.viewer.shown import ShownResponses

__all__ = ["PageContent", "page_content"]

_PART = 2**18
"""How many bytes of texts are packed together: a browser unpacks them in a few milliseconds."""
_SHORT = 160
"""How many characters of a prompt the index has."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """A page's data."""

    index: Mapping[str, Any]
    parts: Sequence[str]
    """Base64 of zlib of JSON: ``prompts``, the turns by problem, and ``responses``."""

    @property
    def size(self) -> int:
        """Bytes of a page, but for what every page has."""
        return sum(map(len, self.parts)) + len(json.dumps(self.index))


def page_content(shown: ShownResponses, limit: int) -> PageContent:
    """The data of a page of at most ``limit`` bytes.

    What turns out to have no room is dropped from ``shown``, but for one response.
    """
    while True:
        content = _content(shown)
        excess = content.size - limit
        if excess <= 0 or len(shown.responses) == 1:
            return content
        count = len(shown.responses)
        shown.drop(min(count - 1, int(count * excess / content.size) + 1 + count // 200))


def _content(shown: ShownResponses) -> PageContent:
    rows = sorted(shown.responses.items(), key=lambda item: (item[0].file, item[0].line))
    places: dict[int, int] = {}
    for one, _ in rows:
        places.setdefault(one.problem, len(places))
    packed = [(len(part), _packed(part, places, shown.turns)) for part in _parts(rows)]
    unread = shown.listing.unread
    index = {
        "problems": [
            [f"Problem {shown.listing.numbers[problem]}", _summary(shown.turns[problem])]
            for problem in places
        ],
        "responses": _columns(rows, places),
        "parts": [count for count, _ in packed],
        "whole": _whole(shown.listing),
        "unread": unread.lines,
        "unreadMore": unread.count - len(unread.lines),
    }
    return PageContent(index, [part for _, part in packed])


def _columns(
    rows: Sequence[tuple[Listed, ViewedResponse]], places: Mapping[int, int]
) -> dict[str, list[Any]]:
    """One list a number, one entry a response."""
    columns: dict[str, list[Any]] = {
        "problem": [places[one.problem] for one, _ in rows],
        "step": [one.step for one, _ in rows],
        "sample": [one.sample for one, _ in rows],
    }
    for name in ("reward", "tokens", "senior", "team", "spans"):
        columns[name] = [getattr(found, name) for _, found in rows]
    for name in ("shared", "scored"):
        columns[name] = [int(getattr(found, name)) for _, found in rows]
    return columns


def _parts(
    rows: Sequence[tuple[Listed, ViewedResponse]],
) -> Iterator[list[tuple[Listed, ViewedResponse]]]:
    part: list[tuple[Listed, ViewedResponse]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row[1].content)
        if size >= _PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _packed(
    part: Sequence[tuple[Listed, ViewedResponse]],
    places: Mapping[int, int],
    turns: Mapping[int, list[tuple[str, str]]],
) -> str:
    prompts = {str(places[one.problem]): turns[one.problem] for one, _ in part}
    contents = b",".join(found.content for _, found in part)
    text = b'{"prompts":%b,"responses":[%b]}' % (json.dumps(prompts).encode(), contents)
    return base64.b64encode(zlib.compress(text, 6)).decode()


def _summary(turns: Sequence[tuple[str, str]]) -> str:
    """The beginning of what was asked: of a chat, the last turn of its user."""
    asked = [text for role, text in turns if role == "user"] or [text for _, text in turns]
    line = " ".join(asked[-1].split()) if asked else ""
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


def _whole(listing: Listing) -> dict[str, int]:
    """How much there is in the files, shown or not."""
    return {
        "responses": len(listing.responses),
        "problems": len(listing.numbers),
        "steps": len({one.step for one in listing.responses} - {None}),
    }
