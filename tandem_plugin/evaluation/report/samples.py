"""Sample responses for a report, cut where the author changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tandem_plugin.evaluation.results import Summary
from tandem_plugin.viewer.passages import JUNIOR, SENIOR, AuthoredText, authored_text
from tandem_plugin.viewer.token_bytes import TokenBytes

__all__ = ["SampleResponse", "sample_responses"]

_SHARED = "shared"
_NAMES = {SENIOR: "senior", JUNIOR: "junior"}


@dataclass(frozen=True, slots=True)
class SampleResponse:
    """One response: who wrote which text, what it was asked, and what became of it."""

    senior: str
    label: str
    benchmark: str
    problem: int
    sample: int
    prompt: str
    outcome: str
    parts: tuple[tuple[str, str], ...]
    """(author, text): ``senior``, ``junior``, ``shared`` for a character of both, or ``""`` where
    the tokenizer is not at hand and nobody can say."""


def sample_responses(
    summary: Summary, count: int, token_bytes: TokenBytes | None
) -> Iterator[SampleResponse]:
    """The first response to each of the first ``count`` problems of each benchmark.

    token_bytes: the senior's tokenizer; None shows responses without authors.
    """
    for name in summary.problems:
        wanted = {(problem, 0) for problem in range(count)}
        outcomes = {
            place: str(row.get("outcome"))
            for place, row in _rows(summary, f"{name}.grades.jsonl", wanted)
        }
        for place, row in sorted(
            _rows(summary, f"{name}.jsonl", wanted), key=lambda found: found[0]
        ):
            yield SampleResponse(
                summary.senior,
                summary.label,
                name,
                *place,
                _prompt(row.get("prompt")),
                outcomes.get(place, "not graded"),
                tuple(_parts(row, token_bytes)),
            )


def _rows(
    summary: Summary, file: str, wanted: set[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    path = summary.folder / file
    if not path.is_file():
        return
    left = set(wanted)
    with path.open("rb") as lines:
        for line in lines:
            if not left or not line.endswith(b"\n"):
                return
            row = json.loads(line)
            place = row["problem"], row["sample"]
            if place in left:
                left.discard(place)
                yield place, row


def _parts(row: dict[str, Any], token_bytes: TokenBytes | None) -> Iterator[tuple[str, str]]:
    authors = row.get("authorship")
    if token_bytes is None:
        yield ("senior" if authors is None else ""), str(row["response"])
        return
    ids = row["response_ids"]
    bits = [SENIOR] * len(ids) if authors is None else authors
    yield from _cut(authored_text(ids, bits, token_bytes))


def _cut(authored: AuthoredText) -> Iterator[tuple[str, str]]:
    """The text of each span, and behind it the characters that it shares with a later one."""
    units = authored.text.encode("utf-16-le", "surrogatepass")
    place = 0

    def take(length: int) -> str:
        nonlocal place
        part = units[2 * place : 2 * (place + length)]
        place += length
        return part.decode("utf-16-le", "surrogatepass")

    for i, (author, _, length) in enumerate(authored.spans):
        if length:
            yield _NAMES[author], take(length)
        for first, _, shared in authored.shared:
            if first == i:
                yield _SHARED, take(shared)


def _prompt(prompt: object) -> str:
    if isinstance(prompt, list):
        return "\n\n".join(str(turn.get("content", "")) for turn in prompt)
    return str(prompt or "")
