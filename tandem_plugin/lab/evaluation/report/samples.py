"""Sample responses for a report, cut where the author changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tandem_plugin.errors import EvaluationError
from tandem_plugin.lab.evaluation.results import Summary
from tandem_plugin.lab.rollouts.rollout_file import placed_rows
from tandem_plugin.spans import JUNIOR, SENIOR, TokenBytes, authored_text

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
            for place, row in _rows(summary, f"{name}.grades.jsonl", wanted, _check_grade)
        }
        for place, row in sorted(
            _rows(summary, f"{name}.jsonl", wanted, _check_response), key=lambda found: found[0]
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
    summary: Summary,
    file: str,
    wanted: set[tuple[int, int]],
    check: Callable[[dict[str, Any]], None],
) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    path = summary.folder / file
    if not os.path.isfile(path):
        return
    left = set(wanted)
    try:
        for problem, sample, row in placed_rows(path) if left else ():
            if (problem, sample) in left:
                left.discard((problem, sample))
                check(row)
                yield (problem, sample), row
                if not left:
                    return
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"{str(path)!r} cannot be read: {error}. Move its folder away, and make it again."
        ) from error


def _check_grade(row: dict[str, Any]) -> None:
    if not isinstance(row.get("outcome"), str):
        raise ValueError("a grade has no outcome")


def _check_response(row: dict[str, Any]) -> None:
    if not isinstance(row.get("response"), str):
        raise ValueError("a response has no text")
    ids = row.get("response_ids")
    if not isinstance(ids, list) or any(type(i) is not int or i < 0 for i in ids):
        raise ValueError("its response_ids are no token ids")
    authors = row.get("authorship")
    if authors is not None and (
        not isinstance(authors, list)
        or len(authors) != len(ids)
        or any(type(a) is not int or not 0 <= a <= 1 for a in authors)
    ):
        raise ValueError("its authorship is not a zero or a one for each of its tokens")


def _parts(row: dict[str, Any], token_bytes: TokenBytes | None) -> Iterator[tuple[str, str]]:
    authors = row.get("authorship")
    if token_bytes is None:
        yield ("senior" if authors is None else ""), str(row["response"])
        return
    ids = row["response_ids"]
    bits = [SENIOR] * len(ids) if authors is None else authors
    authored = authored_text(ids, bits, token_bytes)
    for piece in authored.pieces:
        author, _ = authored.spans[piece.first]
        yield (_NAMES[author] if piece.first == piece.last else _SHARED), piece.text


def _prompt(prompt: object) -> str:
    if isinstance(prompt, list):
        return "\n\n".join(
            str(turn.get("content", "") if isinstance(turn, dict) else turn) for turn in prompt
        )
    return str(prompt or "")
