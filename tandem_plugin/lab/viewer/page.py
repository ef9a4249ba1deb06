"""A page of rollouts: their list, the selection that fits, and its texts, unpacked on demand."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin._version import __version__
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.files import open_file
from tandem_plugin.lab.rollouts.rollout import MalformedRow, Rollout, read_rollout, read_rollouts
from tandem_plugin.lab.rollouts.rollout_file import Grades, file_step, grades_file
from tandem_plugin.lab.viewer.responses import Decoding, prompt_of, turns_of, view_response
from tandem_plugin.spans import TokenBytes

_PART = 200_000
"""Bytes of JSON per chunk: a browser unpacks one in a few milliseconds."""
_COLUMNS = 32
"""Approximate bytes per response in the index."""
_UNREAD = 50
"""Maximum number of unreadable lines that the page explains."""
_SHORT = 160
"""Characters of a prompt in the index."""


class Listed(NamedTuple):
    """The location of one response."""

    file: int
    """The index of its file."""
    line: int
    offset: int
    step: int | None
    """The training step, if the row or its dump's name gives one."""
    problem: int
    """The index of its problem."""
    sample: int
    """The row's own number, or the number of earlier responses to its problem at its step."""


class ShownResponses:
    """The responses of a page, and why others are not shown.

    Of all responses a few numbers stay in memory, of those shown only packed texts, so the size of
    a run does not matter.
    """

    def __init__(self, files: Sequence[Path], vocabulary: Vocabulary) -> None:
        self.files = files
        self._token_bytes = TokenBytes(vocabulary)
        self._decoding = Decoding(vocabulary)
        beside = enumerate(map(grades_file, files))
        self._grades = {i: Grades(path) for i, path in beside if path.is_file()}
        self.listed: list[Listed] = []
        """All responses, in the order of files and lines."""
        self.numbers: list[int] = []
        """The number of each problem: the one in its rows, or its place, from 1."""
        self.unread: list[tuple[str, int, str]] = []
        """(file, line, reason) of lines that cannot be shown; a single file's name is empty."""
        self._problems: dict[tuple[int | None, int], int] = {}
        self._samples: Counter[tuple[int | None, int]] = Counter()
        self.responses: list[tuple[Listed, dict[str, Any]]] = []
        """Those shown, with what the index has of each."""
        self.problems: dict[int, tuple[int, str]] = {}
        """The number of each problem shown, and the beginning of its prompt."""
        self.parts: list[str] = []
        """Base64 of zlib of JSON (``prompts``, ``responses``)."""
        self.legend: set[str] = set()
        """What the legend must explain besides senior and junior."""
        self.misread: list[str] = []
        """The errors of responses whose token ids do not match their text."""

    def read(self, on_read: Callable[[int], None] = lambda count: None) -> None:
        """Read all files. on_read: called with the number of bytes of each line."""
        for number, file in enumerate(self.files):
            step = file_step(file) if len(self.files) > 1 else None
            for row in read_rollouts(file, on_read):
                self._add(number, step, row)

    def _leave_out(self, file: int, line: int, reason: str) -> None:
        """Record a line that cannot be shown."""
        name = self.files[file].name if len(self.files) > 1 else ""
        self.unread.append((name, line, reason))

    def _add(self, file: int, file_step: int | None, row: Rollout | MalformedRow) -> None:
        if isinstance(row, MalformedRow):
            self._leave_out(file, row.line, row.message)
            return
        if row.authorship is not None and len(row.authorship) != len(row.response_ids):
            why = (
                f"The response has {len(row.response_ids)} tokens, its recorded authorship "
                f"{len(row.authorship)}."
            )
            self._leave_out(file, row.line, why)
            return
        noted = row.fields.get("step")
        step = noted if type(noted) is int and abs(noted) < 2**53 else file_step
        problem = self._problem(row.fields)
        number = _number(row.fields.get("sample"))
        sample = self._samples[step, problem] if number is None else number
        self._samples[step, problem] += 1
        self.listed.append(Listed(file, row.line, row.offset, step, problem, sample))

    def _problem(self, fields: Mapping[str, Any]) -> int:
        number = _number(fields.get("problem"))
        prompt = prompt_of(fields)
        key = number, hash(prompt if isinstance(prompt, str) else json.dumps(prompt))
        if key not in self._problems:
            self._problems[key] = len(self._problems)
            self.numbers.append(len(self._problems) if number is None else number)
        return self._problems[key]

    def take(self, room: int, on_taken: Callable[[], None] = lambda: None) -> None:
        """Add responses until they fill about ``room`` bytes of a page.

        A page without room for all shows random problems, the same in every run.
        """
        ranks = list(range(len(self.numbers)))
        random.Random(0).shuffle(ranks)
        prompts: dict[str, Any] = {}
        contents: list[bytes] = []
        size = unpacked = 0
        for one in sorted(self.listed, key=lambda one: ranks[one.problem]):
            if size > room:
                break
            row = self._read(one)
            on_taken()
            if row is None:
                continue
            if str(one.problem) not in prompts:
                turns = prompts[str(one.problem)] = turns_of(prompt_of(row.fields))
                self.problems[one.problem] = self.numbers[one.problem], _summary(turns)
            grades = self._grades.get(one.file)
            grade = grades.of(row) if grades else None
            columns, legend, content = view_response(row, grade, self._token_bytes)
            place = {"part": len(self.parts), "place": len(contents), "problem": one.problem}
            known = {**place, "step": one.step, "sample": one.sample, **columns}
            self.responses.append((one, known))
            self.legend |= legend
            contents.append(content)
            unpacked += len(content)
            if unpacked > _PART:
                size += self._pack(prompts, contents) + _COLUMNS * len(contents)
                prompts, contents, unpacked = {}, [], 0
        self._pack(prompts, contents)

    def _pack(self, prompts: Mapping[str, Any], contents: Sequence[bytes]) -> int:
        """Add a part; its size."""
        text = b'{"prompts":%b,"responses":[%b]}' % (
            json.dumps(prompts).encode(),
            b",".join(contents),
        )
        self.parts.append(base64.b64encode(zlib.compress(text, 6)).decode())
        return len(self.parts[-1])

    def _read(self, one: Listed) -> Rollout | None:
        with open_file(self.files[one.file]) as file:
            row = read_rollout(file, one.line, one.offset)
        if isinstance(row, MalformedRow):  # the file was changed since it was listed
            self._leave_out(one.file, one.line, row.message)
            return None
        if wrong := self._decoding.mismatch(row):
            self.misread.append(wrong)
            self._leave_out(one.file, one.line, wrong)
            return None
        return row


def _number(value: object) -> int | None:
    """A number that is exact in JavaScript, or None."""
    return value if type(value) is int and 0 <= value < 2**53 else None


def page_index(shown: ShownResponses) -> dict[str, Any]:
    """What a page says of its responses, in the order of files and lines, without their texts."""
    rows = sorted(shown.responses, key=lambda response: (response[0].file, response[0].line))
    return {
        "problems": shown.problems,
        "responses": {
            name: [row[name] for _, row in rows] for name in (rows[0][1] if rows else ())
        },
        "legend": sorted(shown.legend),
        "whole": {
            "responses": len(shown.listed),
            "problems": len(shown.numbers),
            "steps": len({one.step for one in shown.listed} - {None}),
        },
        "unread": shown.unread[:_UNREAD],
        "unreadMore": max(0, len(shown.unread) - _UNREAD),
    }


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
