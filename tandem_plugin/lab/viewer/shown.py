"""The responses that a page shows: read from where they lie, as many as it has room for."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandem_plugin.files import open_file
from tandem_plugin.lab.rollouts.grades import Grades
from tandem_plugin.lab.rollouts.rollout import MalformedRow, read_rollout
from tandem_plugin.lab.viewer.decoding import Decoding
from tandem_plugin.lab.viewer.listing import Listed, PageIndex, prompt_of
from tandem_plugin.lab.viewer.responses import ViewedResponse, view_response
from tandem_plugin.spans import TokenBytes

__all__ = ["ShownResponses", "turns_of"]

_SAMPLE = 2**18
"""How many bytes of texts tell how well the rest can be packed."""
_MARGIN = 1.1
"""Parts are packed in another order than texts are taken in: rather take in some too many."""


@dataclass(slots=True)
class ShownResponses:
    """Responses in the order in which they were taken in, and why others were not."""

    listing: PageIndex
    token_bytes: TokenBytes
    decoding: Decoding
    grades: Mapping[int, Grades]
    """By the file's place among the files."""
    responses: dict[Listed, ViewedResponse] = field(default_factory=dict)
    turns: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """What each problem asks."""
    misread: list[str] = field(default_factory=list)
    """What is wrong with responses whose token ids do not give what they record."""

    def take(
        self, chosen: Sequence[Listed], room: int, on_taken: Callable[[], None] = lambda: None
    ) -> None:
        """Take in responses until they fill ``room`` bytes of a page, or a little more."""
        sample, packed, size = b"", 0.0, 0
        for one in chosen:
            if size * packed > room * _MARGIN:
                return
            found = self._read(one)
            on_taken()
            if found is None:
                continue
            self.responses[one] = found
            size += len(found.content)
            if len(sample) < _SAMPLE:
                sample += found.content
                packed = 4 / 3 * len(zlib.compress(sample)) / len(sample)

    def drop(self, count: int) -> None:
        """Take out those that came last."""
        for one in list(self.responses)[-count:]:
            del self.responses[one]

    def _read(self, one: Listed) -> ViewedResponse | None:
        with open_file(self.listing.files[one.file]) as file:
            row = read_rollout(file, one.line, one.offset)
        if isinstance(row, MalformedRow):  # the file was changed since it was listed
            self._unread(one, row.message)
            return None
        if wrong := self.decoding.mismatch(row):
            self.misread.append(wrong)
            self._unread(one, wrong)
            return None
        if one.problem not in self.turns:
            self.turns[one.problem] = turns_of(prompt_of(row.fields))
        grades = self.grades.get(one.file)
        return view_response(row, grades.of(row) if grades else None, self.token_bytes)

    def _unread(self, one: Listed, why: str) -> None:
        self.listing.unread.add(self.listing.name(one.file), one.line, why)


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
