"""Rollouts as the page holds them: texts cut at their handoffs, grouped by problem."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem_plugin.files.strict_json import is_number
from tandem_plugin.rollouts.rollout import MalformedRow, Rollout, short
from tandem_plugin.viewer.authored_text import JUNIOR, OTHER, SENIOR, authored_text
from tandem_plugin.viewer.decoding import Decoding
from tandem_plugin.viewer.token_bytes import TokenBytes

__all__ = ["ViewedResponses"]

_PROMPTS = ("prompt", "input", "question", "problem")
_REWARDS = ("reward", "score")
_GOLDS = ("answer", "gts", "ground_truth")
_MOST_UNREAD = 50


@dataclass(slots=True)
class ViewedResponses:
    """The responses of a page, added one at a time, in the order of the file."""

    token_bytes: TokenBytes
    decoding: Decoding
    problems: list[dict[str, str]] = field(default_factory=list)
    responses: list[dict[str, Any]] = field(default_factory=list)
    unread: list[tuple[int, str]] = field(default_factory=list)
    """Lines that could not be read, the first of them; all are counted."""
    unread_rows: int = 0
    misread: list[str] = field(default_factory=list)
    """What is wrong with lines whose token ids do not give what they record."""
    _places: dict[object, int] = field(default_factory=dict)

    def add_all(self, rows: Iterable[Rollout | MalformedRow]) -> None:
        """Take in the rows of a file."""
        for row in rows:
            if isinstance(row, MalformedRow):
                self._count_unread(row.line, row.message)
            elif row.authorship is not None and len(row.authorship) != len(row.response_ids):
                self._count_unread(
                    row.line,
                    f"The response has {len(row.response_ids)} tokens, its recorded authorship "
                    f"{len(row.authorship)}.",
                )
            elif wrong := self.decoding.mismatch(row):
                self.misread.append(wrong)
                self._count_unread(row.line, wrong)
            else:
                self.responses.append(self._response(row))

    def payload(self) -> dict[str, Any]:
        """What the page's script reads."""
        return {
            "problems": self.problems,
            "responses": self.responses,
            "unread": self.unread,
            "unreadMore": self.unread_rows - len(self.unread),
        }

    def _count_unread(self, line: int, message: str) -> None:
        self.unread_rows += 1
        if len(self.unread) < _MOST_UNREAD:
            self.unread.append((line, message))

    def _response(self, row: Rollout) -> dict[str, Any]:
        authored = authored_text(row.response_ids, _authors(row), self.token_bytes)
        sample = row.fields.get("sample")
        return {
            "problem": self._problem(row.fields),
            "sample": sample if type(sample) is int else None,
            "reward": _reward(row.fields),
            "facts": list(_facts(row)),
            "text": authored.text,
            "spans": [number for span in authored.spans for number in span],
            "shared": [number for shared in authored.shared for number in shared],
        }

    def _problem(self, fields: Mapping[str, Any]) -> int:
        prompt = _prompt(fields)
        name = fields.get("problem")
        key: object = ("name", name) if type(name) is int else ("prompt", prompt)
        if key not in self._places:
            self._places[key] = len(self.problems)
            number = name if type(name) is int else len(self.problems) + 1
            self.problems.append({"name": f"Problem {number}", "prompt": prompt})
        return self._places[key]


def _authors(row: Rollout) -> list[int]:
    if row.authorship is None:
        return [SENIOR] * len(row.response_ids)
    if row.seed is None:
        return row.authorship
    authors = [OTHER] * len(row.response_ids)
    for segment in row.segments:
        for position in range(segment.start, segment.stop):
            authors[position] = SENIOR if row.authorship[position] else JUNIOR
    return authors


def _prompt(fields: Mapping[str, Any]) -> str:
    for name in _PROMPTS:
        value = fields.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return json.dumps(value, ensure_ascii=False, indent=1)
    return ""


def _reward(fields: Mapping[str, Any]) -> float | None:
    for name in _REWARDS:
        value = fields.get(name)
        if is_number(value) or isinstance(value, bool):
            return float(value)
    return None


def _facts(row: Rollout) -> Iterable[str]:
    if row.fields.get("step") is not None:
        yield f"step {short(row.fields['step'])}"
    for name in _GOLDS:
        gold = row.fields.get(name)
        if gold is not None:
            yield f"answer {gold if isinstance(gold, str) and len(gold) < 60 else short(gold)}"
            break
    if row.settings:
        parameters = {k: v for k, v in row.settings.items() if k not in ("schedule", "boundaries")}
        described = [str(row.settings.get("schedule", ""))]
        described += [f"{name}={short(value)}" for name, value in parameters.items()]
        yield " ".join(described).strip()
    yield "senior alone" if row.seed is None else f"seed {row.seed}"
