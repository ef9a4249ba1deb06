"""Ways to spoil a file: its bytes, the values in it, and what lies in its place."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["spoil"]

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 10**400, 0.5, float("nan"), float("inf"), "", "x" * 300, "\x00",
    "\ud800", "../x", [], {}, [[]], [None], [1, "a"], {"a": 1}, "1" * 5000,
)  # fmt: skip
"""What takes the place of a value in a row or a setting."""

RAW = (
    b"9" * 5000, b"1e400", b"[" * 100_000, b'{"a": 1, "a": 2}', b"NaN", b"\xff\xfe",
    b'"\xed\xa0\x80"', b"\x00", b"'x'", b"",
)  # fmt: skip
"""The same as bytes that no JSON writer writes."""


def spoil(path: Path, rng: random.Random) -> str:
    """Spoil one file, or put something else in its place; returns what was done."""
    name, change = rng.choices(KINDS, WEIGHTS)[0]
    change(path, rng)
    return name


def _bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 3, 20)) if content else 0):
        start = rng.randrange(len(content) + 1)
        stop = start + rng.choice((0, 1, 4, 500))
        content[start:stop] = rng.choice((b"", rng.randbytes(4), *RAW[4:8]))
    path.write_bytes(bytes(content))


def _truncated(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def _whole(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    others = (b"\n", b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), content + content)
    path.write_bytes(rng.choice((*others, rng.choice(RAW), rng.randbytes(200))))


def _value(path: Path, rng: random.Random) -> None:
    """Replace, drop or rename one value of a JSON file or of one of its rows."""
    lines = path.read_bytes().split(b"\n")
    whole = not _rows(lines)
    place = 0 if whole else rng.choice([i for i, line in enumerate(lines) if line.strip()])
    try:
        value = json.loads(path.read_bytes() if whole else lines[place])
    except ValueError:
        return _bytes(path, rng)
    where = _somewhere(value, rng)
    if where is None:
        return _bytes(path, rng)
    holder, key = where
    match rng.randrange(6):
        case 0 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case 1:
            del holder[key]
        case _:
            holder[key] = rng.choice(VALUES)
    text = json.dumps(value).encode()
    path.write_bytes(text if whole else b"\n".join([*lines[:place], text, *lines[place + 1 :]]))
    return None


def _rows(lines: list[bytes]) -> bool:
    """Whether the lines are rows, and not parts of one JSON value."""
    try:
        return all(isinstance(json.loads(line), (dict, list)) for line in lines if line.strip())
    except ValueError:
        return False


def _somewhere(value: Any, rng: random.Random) -> tuple[Any, Any] | None:
    """A container within a value, and a key or index of it; deeper ones less often."""
    found = None
    while isinstance(value, (dict, list)) and value and (found is None or rng.random() < 0.7):
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        found, value = (value, key), value[key]
    return found


def _gone(path: Path, rng: random.Random) -> None:
    path.unlink()
    match rng.randrange(4):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to("nowhere")


KINDS: tuple[tuple[str, Callable[[Path, random.Random], None]], ...] = (
    ("bytes", _bytes),
    ("truncated", _truncated),
    ("whole", _whole),
    ("value", _value),
    ("gone", _gone),
)
WEIGHTS = (4, 1, 2, 12, 1)
