"""A page of rollouts: their list, the selection that fits, and its texts, unpacked on demand."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tandem_plugin._version import __version__
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.files import open_file
from tandem_plugin.lab.rollouts.rollout import MalformedRow, Rollout, read_rollout, read_rollouts
from tandem_plugin.lab.rollouts.rollout_file import Grades, file_step, grades_file
from tandem_plugin.lab.viewer.pictures import shown_pictures
from tandem_plugin.lab.viewer.responses import (
    Decoding,
    prompt_of,
    turns_of,
    view_response,
    wrong_logprobs,
)
from tandem_plugin.spans import TokenBytes
from tandem_plugin.training.validation_log import Validation

_PART = 200_000
"""Bytes of JSON per chunk: a browser unpacks one in a few milliseconds."""
_COLUMNS = 60
"""Approximate bytes per response in the index."""
_UNREAD = 50
"""Maximum number of unreadable lines that the page explains."""
_SHORT = 160
"""Characters of a prompt in the index."""


class Listed(NamedTuple):
    """The location of one response."""

    file: int
    """The index of its file."""
    run: int
    """The index of its run."""
    line: int
    offset: int
    step: int | None
    """The training step, if the row or its dump's name gives one."""
    problem: int
    """The index of its problem."""
    sample: int
    """The row's own number, or the number of earlier responses to its problem at its step."""


class _Reading(NamedTuple):
    """How the responses of one run are read."""

    token_bytes: TokenBytes
    decoding: Decoding
    special: frozenset[int]
    are_dumps: bool


class ShownResponses:
    """The responses of a page, and why others are not shown.

    Of all responses a few numbers stay in memory, of those shown only packed texts, so the size of
    a run does not matter. While the run writes, :meth:`add_files`, :meth:`read` and :meth:`take`
    can be called again: they take in what came since.
    """

    def __init__(self, runs: Sequence[str] = ("",)) -> None:
        """runs: their names; a page of one run does not show its name."""
        self.runs = list(runs)
        self.files: list[Path] = []
        self.run_of: list[int] = []
        """The index of each file's run."""
        self._readings: dict[int, _Reading] = {}
        self._read_to: list[tuple[int, int]] = []
        self._grades: dict[int, Grades] = {}
        self.listed: list[Listed] = []
        """All responses, in the order of files and lines."""
        self.numbers: list[int] = []
        """The number of each problem: the one in its rows, or its place, from 1."""
        self.unread: list[tuple[str, int, str]] = []
        """(file, line, reason) of lines that cannot be shown; a single file's name is empty."""
        self._problems: dict[tuple[int | None, int], int] = {}
        self._samples: Counter[tuple[int, int | None, int]] = Counter()
        self._forget_shown()

    def _forget_shown(self) -> None:
        self._taken = 0
        self._misfits: list[tuple[str, int, str]] = []
        self.responses: list[tuple[Listed, dict[str, Any]]] = []
        """Those shown, with what the index has of each."""
        self.problems: dict[int, tuple[int, str]] = {}
        """The number of each problem shown, and the beginning of its prompt."""
        self._packed: list[str] = []
        self._part = _Part()
        self.legend: set[str] = set()
        """What the legend must explain besides senior and junior."""
        self.misread: list[str] = []
        """The errors of responses whose token ids do not match their text."""
        self.without_room = 0
        """The number of responses that the page has no room for."""

    def add_files(
        self,
        files: Sequence[Path],
        vocabulary: Vocabulary,
        *,
        run: int = 0,
        are_dumps: bool = False,
    ) -> None:
        """Read these files of a run as well.

        are_dumps: whether a file that is named by a number has the responses of that step.
        """
        if run not in self._readings:
            bytes_of, decoding = TokenBytes(vocabulary), Decoding(vocabulary)
            special = frozenset(vocabulary.special or ())
            self._readings[run] = _Reading(bytes_of, decoding, special, are_dumps)
        for number, file in enumerate(files, len(self.files)):
            self.files.append(file)
            self.run_of.append(run)
            self._read_to.append((0, 0))
            if (grades := grades_file(file)).is_file():
                self._grades[number] = Grades(grades)

    def files_of(self, run: int) -> list[Path]:
        """The files of one run, in the order in which they were added."""
        return [file for file, its in zip(self.files, self.run_of, strict=True) if its == run]

    @property
    def names(self) -> list[str]:
        """The name of each file, in the folder that the files of its run have in common."""
        folders = [_folder_of(self.files_of(run)) for run in range(len(self.runs))]
        return [
            file.relative_to(folders[run]).as_posix()
            for file, run in zip(self.files, self.run_of, strict=True)
        ]

    def read(
        self, on_read: Callable[[int], None] = lambda count: None, is_growing: bool = False
    ) -> None:
        """Read the rows of all files that are not yet read.

        on_read: called with the bytes of each line. is_growing: see :func:`read_rollouts`.
        """
        for number, file in enumerate(self.files):
            are_dumps = self._readings[self.run_of[number]].are_dumps
            step = file_step(file) if are_dumps else None

            def note(count: int, number: int = number) -> None:
                lines, size = self._read_to[number]
                self._read_to[number] = lines + 1, size + count
                on_read(count)

            after = self._read_to[number]
            for row in read_rollouts(file, note, after=after, is_growing=is_growing):
                if why := self._add(number, step, row):
                    self.unread.append((self._name(number), row.line, why))

    def _name(self, file: int) -> str:
        """A file's name where lines are listed that cannot be shown."""
        if len(self.files) == 1:
            return ""
        name = self.names[file]
        return f"{self.runs[self.run_of[file]]}/{name}" if len(self.runs) > 1 else name

    def _add(self, file: int, file_step: int | None, row: Rollout | MalformedRow) -> str:
        """List a response; the reason if it cannot be shown."""
        if isinstance(row, MalformedRow):
            return row.message
        if row.authorship is not None and len(row.authorship) != len(row.response_ids):
            return (
                f"The response has {len(row.response_ids)} tokens, its recorded authorship "
                f"{len(row.authorship)}."
            )
        noted = row.fields.get("step")
        step = noted if type(noted) is int and abs(noted) < 2**53 else file_step
        problem = self._problem(row.fields)
        number = _number(row.fields.get("sample"))
        run = self.run_of[file]
        group = file if step is None else -1 - run, step, problem
        sample = self._samples[group] if number is None else number
        self._samples[group] += 1
        self.listed.append(Listed(file, run, row.line, row.offset, step, problem, sample))
        return ""

    def _problem(self, fields: Mapping[str, Any]) -> int:
        number = _number(fields.get("problem"))
        prompt = prompt_of(fields)
        text = prompt if isinstance(prompt, str) else json.dumps(prompt)
        key = number, hash((text, json.dumps(fields.get("images"))))
        if key not in self._problems:
            self._problems[key] = len(self._problems)
            self.numbers.append(len(self._problems) if number is None else number)
        return self._problems[key]

    def take(self, room: int, on_taken: Callable[[], None] = lambda: None) -> None:
        """Add the responses read since the last call until the page has about ``room`` bytes.

        A page without room for all shows random problems, the same in every run; it is then made
        anew from all responses.
        """
        is_first = self._taken == 0
        self._fill(self.listed[self._taken :], room, on_taken)
        if self.without_room and not is_first:
            self._forget_shown()
            self._fill(self.listed, room, on_taken)
        self._taken = len(self.listed)

    def _fill(self, some: Sequence[Listed], room: int, on_taken: Callable[[], None]) -> None:
        size = sum(map(len, self._packed)) + _COLUMNS * len(self.responses)
        for place, response in enumerate(
            sorted(some, key=lambda response: _rank(response.problem))
        ):
            if size > room:
                self.without_room = len(some) - place
                return
            viewed = self._view(response)
            on_taken()
            if viewed is None:
                continue
            row, _, (columns, legend, content) = viewed
            turns = turns_of(prompt_of(row.fields))
            self.problems.setdefault(
                response.problem, (self.numbers[response.problem], _summary(turns))
            )
            place_in_part = self._part.add(response.problem, turns, content)
            entry = {
                "part": len(self._packed),
                "place": place_in_part,
                "problem": response.problem,
                "step": response.step,
                "sample": response.sample,
                "file": response.file,
                "run": response.run,
                "line": response.line,
            }
            self.responses.append((response, entry | columns))
            self.legend |= legend
            self._part.add_pictures(response.problem, row.fields)
            if self._part.unpacked > _PART:
                size += len(self._part.contents) * _COLUMNS
                self._packed.append(self._part.packed())
                size += len(self._packed[-1])
                self._part = _Part()

    def views(
        self,
    ) -> Iterator[tuple[Listed, Rollout, Mapping[str, Any] | None, Mapping[str, Any], str]]:
        """(place, row, grade, columns, text) of each response, by run, file and line.

        One that cannot be shown is left out, and listed in :attr:`unshown`.
        """
        for response in sorted(self.listed, key=_place):
            if (viewed := self._view(response)) is not None:
                row, grade, (columns, _, content) = viewed
                yield response, row, grade, columns, json.loads(content)["text"]

    def _view(
        self, response: Listed
    ) -> tuple[Rollout, Mapping[str, Any] | None, tuple[dict[str, Any], set[str], bytes]] | None:
        """A response, its grade and what is seen of it; None, and noted, if it cannot be shown."""
        row = self._read(response)
        if isinstance(row, str):
            self._misfits.append((self._name(response.file), response.line, row))
            return None
        grades = self._grades.get(response.file)
        grade = grades.of(row) if grades else None
        reading = self._readings[response.run]
        return row, grade, view_response(row, grade, reading.token_bytes, reading.special)

    @property
    def parts(self) -> list[str]:
        """Base64 of zlib of JSON (``prompts``, ``responses``)."""
        return [*self._packed, self._part.packed()]

    @property
    def unshown(self) -> list[tuple[str, int, str]]:
        """(file, line, reason) of all lines that cannot be shown; a single file's name is empty."""
        return [*self.unread, *self._misfits]

    def _read(self, listed: Listed) -> Rollout | str:
        """A response, or why it cannot be shown."""
        with open_file(self.files[listed.file]) as file:
            row = read_rollout(file, listed.line, listed.offset)
        if isinstance(row, MalformedRow):  # the file was changed since it was listed
            return row.message
        if wrong := self._readings[listed.run].decoding.mismatch(row):
            self.misread.append(wrong)
            return wrong
        return wrong_logprobs(row) or row


class _Part:
    """The texts of some responses, and the prompts of their problems."""

    def __init__(self) -> None:
        self._prompts: dict[str, Any] = {}
        self._seen: set[int] = set()
        """The problems whose images were looked for."""
        self.contents: list[bytes] = []
        self.unpacked = 0
        """Bytes of the texts."""

    def add(self, problem: int, turns: Sequence[tuple[str, str]], content: bytes) -> int:
        """Add a response; its place."""
        self._prompts.setdefault(str(problem), turns)
        self.contents.append(content)
        self.unpacked += len(content)
        return len(self.contents) - 1

    def add_pictures(self, problem: int, fields: Mapping[str, Any]) -> None:
        """Add the images of a problem's prompt, once. fields: of a row that answers it."""
        if problem in self._seen:
            return
        self._seen.add(problem)
        if pictures := shown_pictures(fields):
            self._prompts[str(problem)] = [*self._prompts[str(problem)], ("", "", pictures)]
            self.unpacked += sum(len(source or text) for source, text in pictures)

    def packed(self) -> str:
        """Base64 of zlib of JSON."""
        responses = b",".join(self.contents)
        prompts = json.dumps(self._prompts).encode()
        text = b'{"prompts":%b,"responses":[%b]}' % (prompts, responses)
        return base64.b64encode(zlib.compress(text, 6)).decode()


def _folder_of(files: Sequence[Path]) -> str:
    """The folder that files have in common."""
    return os.path.commonpath([file.parent for file in files]) if files else ""


def _rank(problem: int) -> bytes:
    """The place of a problem in a random order, whatever problems come after it."""
    return hashlib.sha256(b"%d" % problem).digest()


def _number(value: object) -> int | None:
    """A number that is exact in JavaScript, or None."""
    return value if type(value) is int and 0 <= value < 2**53 else None


class Live(NamedTuple):
    """Of a page that is written again while its run goes on."""

    written: int
    """When, in milliseconds since 1970."""
    every: int
    """After how many milliseconds an open page looks for a newer one."""


def page_index(
    shown: ShownResponses,
    live: Live | None = None,
    validations: Sequence[Sequence[Validation]] = (),
) -> dict[str, Any]:
    """What a page shows about its responses, in the order of files and lines, without their texts.

    live: None for a page that stays as it is. validations: of each run.
    """
    rows = sorted(shown.responses, key=lambda response: _place(response[0]))
    return {
        "problems": shown.problems,
        "responses": {
            name: [row[name] for _, row in rows] for name in (rows[0][1] if rows else ())
        },
        "live": None if live is None else live._asdict(),
        "files": shown.names,
        "runs": shown.runs,
        "legend": sorted(shown.legend),
        "validations": [list(map(asdict, some)) for some in validations],
        "whole": {
            "responses": len(shown.listed),
            "problems": len(shown.numbers),
            "steps": len({response.step for response in shown.listed} - {None}),
        },
        "withoutRoom": shown.without_room,
        "unread": shown.unshown[:_UNREAD],
        "unreadMore": max(0, len(shown.unshown) - _UNREAD),
    }


def _place(listed: Listed) -> tuple[int, int, int]:
    return listed.run, listed.file, listed.line


def _summary(turns: Sequence[tuple[str, str]]) -> str:
    """The beginning of the prompt; for a chat, the user's last turn."""
    texts = [text for role, text in turns if role == "user"] or [text for _, text in turns]
    line = " ".join(texts[-1].split()) if texts else ""
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


_ASSETS = Path(__file__).with_name("assets")
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


def make_page(title: str, index: Mapping[str, Any], parts: Sequence[str]) -> str:
    """The page of some rollouts.

    The index is in a JSON block that a browser does not run, with everything escaped that HTML
    could take for markup; parts are Base64 in the same kind of block. The Content Security Policy
    allows only this page's own script and style, by their hashes, and images that it contains; it
    forbids every request.
    """
    script = _script()
    style = (_ASSETS / "page.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
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
