"""A page of rollouts: the selection that fits, its index, and its texts, unpacked on demand."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tandem_plugin._version import __version__
from tandem_plugin.files import open_file
from tandem_plugin.lab.rollouts.grades import Grades
from tandem_plugin.lab.rollouts.rollout import MalformedRow, read_rollout
from tandem_plugin.lab.viewer.index import Listed, PageIndex
from tandem_plugin.lab.viewer.responses import (
    Decoding,
    ViewedResponse,
    prompt_of,
    turns_of,
    view_response,
)
from tandem_plugin.spans import TokenBytes

__all__ = ["ShownResponses", "make_page", "page_content"]

_PART = 64
"""Responses per chunk: a browser unpacks one in a few milliseconds."""
_COLUMNS = 24
"""Approximate bytes per response in the index, before Base64."""
_UNREAD = 50
"""Maximum number of unreadable lines that the page explains."""
_SHORT = 160
"""Characters of a prompt in the index."""


@dataclass(slots=True)
class ShownResponses:
    """The responses of a page, and why others are not shown."""

    listing: PageIndex
    token_bytes: TokenBytes
    decoding: Decoding
    grades: Mapping[int, Grades]
    """By the index of the file."""
    responses: dict[Listed, ViewedResponse] = field(default_factory=dict)
    turns: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """The text of each problem."""
    misread: list[str] = field(default_factory=list)
    """The errors of responses whose token ids do not match their text."""

    def take(
        self, chosen: Sequence[Listed], room: int, on_taken: Callable[[], None] = lambda: None
    ) -> None:
        """Add responses until they fill about ``room`` bytes of a page."""
        packer, size = zlib.compressobj(), 0
        for one in chosen:
            if size * 4 / 3 > room:  # Base64
                return
            is_new = one.problem not in self.turns
            found = self._read(one)
            on_taken()
            if found is None:
                continue
            self.responses[one] = found
            prompt = json.dumps(self.turns[one.problem]).encode() if is_new else b""
            size += len(packer.compress(found.content + prompt)) + _COLUMNS

    def _read(self, one: Listed) -> ViewedResponse | None:
        with open_file(self.listing.files[one.file]) as file:
            row = read_rollout(file, one.line, one.offset)
        if isinstance(row, MalformedRow):  # the file was changed since it was listed
            self.listing.leave_out(one.file, one.line, row.message)
            return None
        if wrong := self.decoding.mismatch(row):
            self.misread.append(wrong)
            self.listing.leave_out(one.file, one.line, wrong)
            return None
        if one.problem not in self.turns:
            self.turns[one.problem] = turns_of(prompt_of(row.fields))
        grades = self.grades.get(one.file)
        return view_response(row, grades.of(row) if grades else None, self.token_bytes)


def page_content(shown: ShownResponses) -> tuple[dict[str, Any], list[str]]:
    """The index of a page, and its parts: Base64 of zlib of JSON (``prompts``, ``responses``)."""
    rows = sorted(shown.responses.items(), key=lambda item: (item[0].file, item[0].line))
    places: dict[int, int] = {}
    for one, _ in rows:
        places.setdefault(one.problem, len(places))
    parts = [rows[start : start + _PART] for start in range(0, len(rows), _PART)]
    unread = shown.listing.unread
    index = {
        "problems": [
            [f"Problem {shown.listing.numbers[problem]}", _summary(shown.turns[problem])]
            for problem in places
        ],
        "responses": _columns(rows, places),
        "parts": [len(part) for part in parts],
        "whole": {
            "responses": len(shown.listing.responses),
            "problems": len(shown.listing.numbers),
            "steps": len({one.step for one in shown.listing.responses} - {None}),
        },
        "unread": unread[:_UNREAD],
        "unreadMore": max(0, len(unread) - _UNREAD),
    }
    return index, [_packed(part, places, shown.turns) for part in parts]


def _columns(
    rows: Sequence[tuple[Listed, ViewedResponse]], places: Mapping[int, int]
) -> dict[str, list[Any]]:
    """One list per number, one entry per response."""
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
    """The beginning of the prompt; for a chat, the user's last turn."""
    asked = [text for role, text in turns if role == "user"] or [text for _, text in turns]
    line = " ".join(asked[-1].split()) if asked else ""
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


_ASSETS = Path(__file__).with_name("assets")
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


def make_page(title: str, index: Mapping[str, Any], parts: Sequence[str]) -> str:
    """The page of some rollouts.

    The index is in a JSON block that a browser does not run, with everything escaped that HTML
    could take for markup; parts are Base64 in the same kind of block. The Content Security Policy
    allows only this page's own script and style, by their hashes, and forbids every request.
    """
    script = _script()
    style = (_ASSETS / "page.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types"
    )
    filled = {
        "policy": policy,
        "title": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "version": html.escape(__version__),
        "style": style,
        "script": script,
        "rollouts": json.dumps(index, allow_nan=False, separators=(",", ":")).translate(_ESCAPES),
        "parts": "\n".join(
            f'<script type="application/octet-stream" id="part-{i}">{part}</script>'
            for i, part in enumerate(parts)
        ),
    }
    template = (_ASSETS / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], template)


def _script() -> str:
    """The page's one script: its files, in the order of their names, in a scope of their own."""
    parts = [file.read_text(encoding="utf-8") for file in sorted(_ASSETS.glob("*.js"))]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _hash(source: str) -> str:
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"
