"""Problems to answer, from a JSON or JSONL file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem_plugin.cli.rollouts import RolloutError, short

__all__ = ["Problem", "digest", "read_problems"]

PROMPTS = ("problem", "prompt", "question")
ANSWERS = ("answer", "ground_truth")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what is asked, and the right answer where the file has it."""

    prompt: str | list[dict[str, str]]
    """A text, or the messages of a chat."""
    answer: Any = None

    def messages(self) -> list[dict[str, str]]:
        """The prompt as a chat."""
        if isinstance(self.prompt, str):
            return [{"role": "user", "content": self.prompt}]
        return self.prompt


def read_problems(path: Path) -> list[Problem]:
    """The problems of a file: one JSON object a line, or one JSON list of objects.

    The prompt is in the field problem, prompt or question; the answer in answer or ground_truth.
    Raises :class:`RolloutError` naming the file and the row for anything else: no row is left out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RolloutError(f"The problems {str(path)!r} cannot be read: {error}.") from error
    problems = [_problem(path, name, row) for name, row in _rows(path, text)]
    if not problems:
        raise RolloutError(f"{str(path)!r} holds no problems.")
    return problems


def digest(problems: Sequence[Problem]) -> str:
    """A hash of what is asked, by which a run knows its problems again."""
    asked = json.dumps([problem.prompt for problem in problems])
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def _rows(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    if text.lstrip().startswith("["):
        content = _parsed(path, "it", text)
        yield from ((f"row {i}", row) for i, row in enumerate(content, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"line {number}", _parsed(path, f"line {number}", line)


def _parsed(path: Path, name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RolloutError(
            f"The problems {str(path)!r} cannot be read: {name} is not JSON ({error})."
        ) from error


def _problem(path: Path, name: str, row: Any) -> Problem:
    if not isinstance(row, dict):
        raise RolloutError(f"{str(path)!r}, {name} is {short(row)}, not a JSON object.")
    for field in PROMPTS:
        if field in row:
            if not _is_prompt(row[field]):
                raise RolloutError(
                    f"{str(path)!r}, {name}: {field}={short(row[field])} is neither a text nor a "
                    "list of messages with role and content."
                )
            answer = next((row[key] for key in ANSWERS if key in row), None)
            return Problem(row[field], answer)
    raise RolloutError(f"{str(path)!r}, {name} has none of the fields {', '.join(PROMPTS)}.")


def _is_prompt(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in value
        )
    return isinstance(value, str) and bool(value.strip())
