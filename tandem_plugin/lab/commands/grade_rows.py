"""The rows of a file of responses, one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tandem_plugin.errors import DataError
from tandem_plugin.files import open_file, told
from tandem_plugin.files.strict_json import parse_json

__all__ = ["read_rows"]

_EXPECTED = 'Give one JSON object a line, such as {"response": "... \\\\boxed{4}", "gold": "4"}.'


def read_rows(
    path: Path,
    response_fields: Sequence[str],
    gold_fields: Sequence[str],
    prompt_fields: Sequence[str] = (),
) -> Iterator[tuple[int, str, object, str | None, int]]:
    """(line, response, gold, prompt or None, bytes) of every row, blank lines left out.

    Raises :class:`DataError` for a file that cannot be read and for the first row without a
    response or a gold: a file that is not what was meant should not be graded.
    """
    try:
        with open_file(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    response, gold, row = _row(
                        line, f"{path}, line {number}", response_fields, gold_fields
                    )
                    prompts = (row.get(name) for name in prompt_fields)
                    prompt = next((text for text in prompts if isinstance(text, str)), None)
                    yield number, response, gold, prompt, len(line)
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {told(error)}") from error


def _row(
    line: bytes, where: str, response_fields: Sequence[str], gold_fields: Sequence[str]
) -> tuple[str, object, dict[str, object]]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError(f"{where} is not JSON: {error}. {_EXPECTED}") from error
    if not isinstance(row, dict):
        raise DataError(f"{where} is no JSON object with a response and a gold. {_EXPECTED}")
    response = next((row[name] for name in response_fields if name in row), None)
    gold = next((row[name] for name in gold_fields if row.get(name) is not None), None)
    if not isinstance(response, str):
        raise DataError(
            f"{where} has no text in any field of: {', '.join(response_fields)}. {_EXPECTED}"
        )
    if gold is None:
        raise DataError(
            f"{where} has no gold in any field of: {', '.join(gold_fields)}. {_EXPECTED}"
        )
    return response, gold, row
