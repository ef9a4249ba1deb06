"""A rollout file with one JSON object per line, as a trainer writes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tandem_plugin._draws import check_seed
from tandem_plugin.errors import TandemError, validation_reason
from tandem_plugin.files import open_file, parse_json, system_reason

MAX_TOKEN_ID = 2**31 - 1
ROW_DIGEST = "row_sha256"
"""The field in which a row has the digest of its other fields, if its writer recorded one."""


class RolloutError(TandemError, ValueError):
    """A rollout file, or a row of it, cannot be read."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens of one engine call: response positions ``start`` to ``stop`` (exclusive)."""

    seed: int
    start: int
    stop: int
    settings: Mapping[str, Any] | None = None
    """The call's own schedule and parameters; None for the row's."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One response: its tokens, and the recorded authorship."""

    line: int
    """The line of the file, counted from 1."""
    response_ids: list[int]
    authorship: list[int] | None
    """Zeros and ones; None only if the senior wrote alone and nothing was recorded."""
    seed: int | None
    """The tandem seed; None if the senior wrote alone."""
    segments: list[Segment]
    """The parts that the team wrote, in order; empty if the senior wrote alone."""
    fingerprint: str | None
    settings: Mapping[str, Any]
    """The schedule and its parameters, if the row records them."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The whole row."""
    offset: int = 0
    """The byte of the file at which the line begins: see :func:`read_rollout`."""
    unknown: list[tuple[int, int]] = field(default_factory=list)
    """(start, stop) of tokens that two calls could have written with different authors."""


@dataclass(frozen=True, slots=True)
class MalformedRow:
    """A line that is not a rollout."""

    line: int
    message: str


def read_rollouts(
    path: Path,
    on_read: Callable[[int], None] = lambda count: None,
    *,
    after: tuple[int, int] = (0, 0),
    is_growing: bool = False,
) -> Iterator[Rollout | MalformedRow]:
    """The rows of a file, one at a time, without blank lines.

    on_read: called with the number of bytes of each line. after: the lines, and their bytes, to
    skip at the beginning. is_growing: whether a last line without its end is still being written,
    and left for a later call. Raises :class:`RolloutError` if the file cannot be read.
    """
    lines, offset = after
    try:
        with open_file(path) as file:
            file.seek(offset)
            for number, line in enumerate(file, lines + 1):
                if is_growing and not line.endswith(b"\n"):
                    return
                if line.strip():
                    yield _row(line, number, offset)
                offset += len(line)
                on_read(len(line))
    except OSError as error:
        raise RolloutError("file-unreadable", path=path, reason=system_reason(error)) from error


def read_rollout(file: BinaryIO, line: int, offset: int) -> Rollout | MalformedRow:
    """The row at a byte offset of a file."""
    file.seek(offset)
    return _row(file.readline(), line, offset)


TokenId: TypeAlias = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
Bit: TypeAlias = Annotated[int, Field(ge=0, le=1)] | bool
_Seed: TypeAlias = Annotated[int, BeforeValidator(check_seed)]
_Range: TypeAlias = Annotated[tuple[int, int], Field(strict=False)]
_SeededRange: TypeAlias = Annotated[tuple[_Seed, int, int], Field(strict=False)]


class _Row(BaseModel):
    """The fields of a row that are read here; others are kept as they are."""

    model_config = ConfigDict(strict=True)

    response_ids: list[TokenId]
    authorship: list[Bit] | None = None
    tandem_seed: _Seed | None
    tandem_segments: list[_SeededRange] | None = None
    tandem_segment_schedules: list[dict[str, Any] | None] | None = None
    tandem_unknown: list[_Range] | None = None
    tandem_fingerprint: str | None = None
    tandem_schedule: dict[str, Any] | None = None


def _row(line: bytes, number: int, offset: int) -> Rollout | MalformedRow:
    try:
        row = parse_json(line)
        if not isinstance(row, dict):
            raise RolloutError("rollout-not-object")
        if was_edited(row):
            raise RolloutError("rollout-row-edited")
        return _rollout(row, number, offset)
    except TandemError as error:
        return MalformedRow(number, str(error))
    except ValueError as error:
        return MalformedRow(number, str(RolloutError("rollout-not-json", error=error)))


def was_edited(row: Mapping[str, Any]) -> bool:
    """Whether a row has a digest that is not its own."""
    return ROW_DIGEST in row and row[ROW_DIGEST] != row_digest(row)


def row_digest(row: Mapping[str, Any]) -> str:
    """A digest of a row's content but itself, whatever the order and the spelling of its JSON.

    Raises ValueError for a row that is nested too deeply.
    """
    content = {name: value for name, value in row.items() if name != ROW_DIGEST}
    try:
        return text_digest(json.dumps(content, sort_keys=True))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def text_digest(text: str) -> str:
    """16 hexadecimal digits of SHA-256, such as those that tie a grade to its response."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_row(row: Mapping[str, Any]) -> None:
    """Raise :class:`RolloutError` for a row that is not a rollout."""
    _rollout(dict(row), 0, 0)


def _rollout(row: dict[str, Any], number: int, offset: int) -> Rollout:
    for name in ("response_ids", "tandem_seed"):
        if name not in row:
            raise RolloutError("rollout-field-missing", name=name)
    try:
        fields = _Row.model_validate(row)
    except ValidationError as error:
        wrong = error.errors()[0]
        field, *places = wrong["loc"]
        where = "".join(f"[{place}]" for place in places if isinstance(place, int))
        reason = validation_reason(wrong["msg"])
        raise RolloutError(
            "rollout-field-invalid", field=f"{field}{where}", value=wrong["input"], reason=reason
        ) from error
    if fields.tandem_seed is not None:
        for name in ("authorship", "tandem_fingerprint"):
            if getattr(fields, name) is None:
                raise RolloutError("rollout-field-missing", name=name)
    segments = _segments(fields)
    _check_unknown(fields.tandem_unknown or [], segments)
    return Rollout(
        line=number,
        response_ids=fields.response_ids,
        authorship=None if fields.authorship is None else list(map(int, fields.authorship)),
        seed=fields.tandem_seed,
        segments=segments,
        unknown=fields.tandem_unknown or [],
        fingerprint=fields.tandem_fingerprint,
        settings=fields.tandem_schedule or {},
        fields=row,
        offset=offset,
    )


def _segments(row: _Row) -> list[Segment]:
    """The row's segments; without any, the response is one segment of the row's seed."""
    length = len(row.response_ids)
    if row.tandem_seed is None:
        return []
    if not row.tandem_segments:
        return [Segment(row.tandem_seed, 0, length)]
    schedules = row.tandem_segment_schedules or [None] * len(row.tandem_segments)
    if len(schedules) != len(row.tandem_segments):
        raise RolloutError(
            "rollout-segment-schedules-invalid", value=schedules, segments=len(row.tandem_segments)
        )
    segments: list[Segment] = []
    earliest = 0
    for index, (seed, start, stop) in enumerate(row.tandem_segments):
        if not earliest <= start <= stop <= length:
            raise RolloutError(
                "rollout-segment-out-of-range",
                index=index,
                value=[seed, start, stop],
                earliest=earliest,
                length=length,
            )
        segments.append(Segment(seed, start, stop, schedules[index]))
        earliest = stop
    if segments[0].seed != row.tandem_seed:
        raise RolloutError(
            "rollout-segment-seed-differs", segment_seed=segments[0].seed, seed=row.tandem_seed
        )
    return segments


def _check_unknown(unknown: list[tuple[int, int]], segments: list[Segment]) -> None:
    """Tokens of unknown author must lie within segments, in order."""
    done = 0
    for index, (start, stop) in enumerate(unknown):
        written = sum(
            max(0, min(stop, segment.stop) - max(start, segment.start)) for segment in segments
        )
        if not done <= start < stop or written != stop - start:
            raise RolloutError(
                "rollout-unknown-span-invalid", index=index, value=[start, stop], done=done
            )
        done = stop
