"""A rollout file with one JSON object per line, as a trainer writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tandem_plugin.draws import check_seed
from tandem_plugin.errors import TandemError
from tandem_plugin.files import open_file, system_reason
from tandem_plugin.files.strict_json import is_number, parse_json

__all__ = [
    "SCORES",
    "MalformedRow",
    "Rollout",
    "RolloutError",
    "Segment",
    "read_rollout",
    "read_rollouts",
    "short",
]

SCORES = ("senior_logprobs", "junior_logprobs", "overlaps")
"""The columns of what both models make of each token, whoever wrote it."""

MAX_LINE_BYTES = 2**26
MAX_TOKEN_ID = 2**31 - 1


class RolloutError(TandemError, ValueError):
    """A rollout file, or a row of it, cannot be read."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens of one engine call: response positions ``start`` to ``stop`` (exclusive)."""

    seed: int
    start: int
    stop: int
    settings: Mapping[str, Any] | None = None
    """The schedule that the call asked for, and its parameters; None for the row's."""

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Rollout:
    """One response: its tokens, and the recorded authorship."""

    line: int
    """The line of the file, counted from 1."""
    response_ids: list[int]
    authorship: list[int] | None
    """Zeros and ones; None only where the senior wrote alone and nothing was recorded."""
    seed: int | None
    """The tandem seed; None where the senior wrote alone."""
    segments: list[Segment]
    """The parts that the team wrote, in order; none where the senior wrote alone."""
    fingerprint: str | None
    settings: Mapping[str, Any]
    """The schedule and its parameters, as far as the row carries them."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Everything that the row says."""
    scores: tuple[list[float], ...] | None = None
    """Of each token both models' log p, the senior's first, and their overlap there, where the row
    has them: see :data:`SCORES`."""
    offset: int = 0
    """The byte of the file at which the line begins: see :func:`read_rollout`."""
    unknown: list[tuple[int, int]] = field(default_factory=list)
    """(start, stop) of what two calls could have written with different authors, in order."""


@dataclass(frozen=True, slots=True)
class MalformedRow:
    """A line that is not a rollout."""

    line: int
    message: str


def read_rollouts(
    path: Path, on_read: Callable[[int], None] = lambda count: None
) -> Iterator[Rollout | MalformedRow]:
    """The rows of a file, one at a time, without blank lines.

    on_read: called with the number of bytes of each line. Raises :class:`RolloutError` if the file
    cannot be opened, or a line is too long to be a response.
    """
    try:
        with open_file(path) as file:
            number = offset = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise RolloutError(
                        "TP771", path=path, number=number, mebibytes=MAX_LINE_BYTES // 2**20
                    )
                if line.strip():
                    yield _row(line, number, offset)
                offset += len(line)
                on_read(len(line))
    except OSError as error:
        raise RolloutError("TP754", path=path, reason=system_reason(error)) from error


def read_rollout(file: BinaryIO, line: int, offset: int) -> Rollout | MalformedRow:
    """The row that begins at a byte of a file, as :func:`read_rollouts` told it."""
    file.seek(offset)
    return _row(file.readline(MAX_LINE_BYTES + 1), line, offset)


def _row(line: bytes, number: int, offset: int) -> Rollout | MalformedRow:
    try:
        return _rollout(_parsed(line), number, offset)
    except TandemError as error:
        return MalformedRow(number, str(error))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise RolloutError("TP772", error=error) from error
    if not isinstance(row, dict):
        raise RolloutError("TP773")
    return row


def _rollout(row: dict[str, Any], number: int, offset: int) -> Rollout:
    for name in ("response_ids", "tandem_seed"):
        if name not in row:
            raise RolloutError("TP774", name=name)
    seed = None if row["tandem_seed"] is None else check_seed(row["tandem_seed"])
    response_ids = _integers("response_ids", row["response_ids"], MAX_TOKEN_ID)
    segments = [] if seed is None else _segments(row, seed, len(response_ids))
    return Rollout(
        line=number,
        response_ids=response_ids,
        authorship=_authorship(row, seed),
        seed=seed,
        segments=segments,
        unknown=_unknown(row, segments),
        fingerprint=_fingerprint(row, seed),
        settings=_settings(row),
        fields=row,
        scores=_scores(row, len(response_ids)),
        offset=offset,
    )


def _authorship(row: dict[str, Any], seed: int | None) -> list[int] | None:
    bits = row.get("authorship")
    if bits is None:
        if seed is None:
            return None
        raise RolloutError("TP775")
    if isinstance(bits, list) and bool in set(map(type, bits)):
        bits = [int(bit) if isinstance(bit, bool) else bit for bit in bits]
    return _integers("authorship", bits, 1)


def _segments(row: dict[str, Any], seed: int, length: int) -> list[Segment]:
    """The row's segments; without any, the response is one segment of the row's seed."""
    listed = row.get("tandem_segments")
    if listed is None or listed == []:
        return [Segment(seed, 0, length)]
    if not isinstance(listed, list):
        raise RolloutError("TP776", value=short(listed))
    segments: list[Segment] = []
    asked = _asked(row.get("tandem_segment_schedules"), len(listed))
    for i, item in enumerate(listed):
        segment = _segment(f"tandem_segments[{i}]", item, asked[i])
        earliest = segments[-1].stop if segments else 0
        if not earliest <= segment.start <= segment.stop <= length:
            raise RolloutError(
                "TP777", index=i, value=short(item), earliest=earliest, length=length
            )
        segments.append(segment)
    if segments[0].seed != seed:
        raise RolloutError("TP778", segment_seed=segments[0].seed, seed=seed)
    return segments


def _unknown(row: dict[str, Any], segments: list[Segment]) -> list[tuple[int, int]]:
    """The tokens of unknown author, which lie within segments."""
    listed = row.get("tandem_unknown")
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise RolloutError("TP779", value=short(listed))
    done = 0
    for i, item in enumerate(listed):
        if not isinstance(item, list) or list(map(type, item)) != [int, int]:
            raise RolloutError("TP780", index=i, value=short(item))
        start, stop = item
        written = sum(
            max(0, min(stop, segment.stop) - max(start, segment.start)) for segment in segments
        )
        if not done <= start < stop or written != stop - start:
            raise RolloutError("TP781", index=i, value=short(item), done=done)
        done = stop
    return [(start, stop) for start, stop in listed]


def _asked(listed: object, segments: int) -> list[Mapping[str, Any] | None]:
    """The settings of each segment whose call asked for a schedule of its own."""
    if listed is None:
        return [None] * segments
    if (
        not isinstance(listed, list)
        or len(listed) != segments
        or not all(one is None or isinstance(one, dict) for one in listed)
    ):
        raise RolloutError("TP782", value=short(listed), segments=segments)
    return listed


def _segment(name: str, item: object, asked: Mapping[str, Any] | None) -> Segment:
    if not isinstance(item, list) or len(item) != 3 or any(type(part) is not int for part in item):
        raise RolloutError("TP783", name=name, value=short(item))
    return Segment(check_seed(item[0]), item[1], item[2], asked)


def _scores(row: dict[str, Any], length: int) -> tuple[list[float], ...] | None:
    columns = [row.get(name) for name in SCORES]
    if all(column is None for column in columns):
        return None
    for name, column in zip(SCORES, columns, strict=True):
        if not isinstance(column, list) or len(column) != length or not all(map(is_number, column)):
            raise RolloutError("TP784", name=name, value=short(column), length=length)
    return tuple(columns)  # type: ignore[arg-type]  # lists of numbers, as was just seen


def _fingerprint(row: dict[str, Any], seed: int | None) -> str | None:
    fingerprint = row.get("tandem_fingerprint")
    if fingerprint is None and seed is None:
        return None
    if not isinstance(fingerprint, str):
        raise RolloutError("TP785", fingerprint=short(fingerprint))
    return fingerprint


def _settings(row: dict[str, Any]) -> dict[str, Any]:
    settings = row.get("tandem_schedule")
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise RolloutError("TP786", settings=short(settings))
    return settings


def _integers(field: str, value: object, largest: int) -> list[int]:
    if not isinstance(value, list):
        raise RolloutError("TP787", field=field, value=short(value))
    # Thousands of tokens are looked at in a few passes; one by one only to say what is wrong.
    if set(map(type, value)) <= {int} and 0 <= min(value, default=0) <= max(value, default=0) <= (
        largest
    ):
        return value
    for position, item in enumerate(value):
        if type(item) is not int or not 0 <= item <= largest:
            raise RolloutError(
                "TP788", field=field, position=position, value=short(item), largest=largest
            )
    return value


def short(value: object) -> str:
    """``repr(value)``, cut to what fits in a sentence."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
