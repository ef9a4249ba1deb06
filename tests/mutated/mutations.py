"""Ways to spoil a file: its bytes, the values in it, and what lies in its place."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["spoil"]

DEEP = 100_000


def _nested(depth: int) -> Any:
    value: Any = 1
    for i in range(depth):
        value = [value] if i % 2 else {"a": value}
    return value


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 10**18, 2**63, -(2**63) - 1, 10**309, 10**400, 1e308, -0.0, 0.5,
    float("nan"), float("inf"), "", "x", "x" * 300, "\x00", "\ud800", "é" * 200, "../x", [],
    {}, [[]], [None], [1, "a"], {"a": 1}, [10**400], _nested(60), _nested(150), "1" * 5000,
)  # fmt: skip
"""What takes the place of a value in a row or a setting."""

RAW = (
    b"9" * 5000, b"-" + b"9" * 5000, b"1e400", b"[" * DEEP, b'{"a":' * DEEP,
    b"[" * 900 + b"]" * 900,
    b'{"a": 1, "a": 2}', b"NaN", b"-Infinity", b"\xff\xfe", b'"\xed\xa0\x80"', b"\x00", b"'x'", b"",
)  # fmt: skip
"""The same as bytes that no JSON writer writes."""

INSERTED = (
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
    b"{",
    b"]",
    b'"',
    b"\xc3",
    b"9" * 400,
)


def spoil(path: Path, rng: random.Random) -> str:
    """Spoil one file, or put something else in its place; returns what was done."""
    name, change = rng.choices(KINDS, WEIGHTS)[0]
    change(path, rng)
    return name


def _bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 3, 20))):
        if not content:
            break
        start = rng.randrange(len(content))
        stop = min(len(content), start + rng.choice((1, 1, 4, 50, 500)))
        match rng.randrange(5):
            case 0:
                content[start] ^= 1 << rng.randrange(8)
            case 1:
                del content[start:stop]
            case 2:
                content[start:start] = content[start:stop]
            case 3:
                content[start:start] = rng.choice(INSERTED)
            case 4:
                content[start:stop] = rng.randbytes(stop - start)
    path.write_bytes(bytes(content))


def _truncated(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def _whole(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    lines = content.split(b"\n")
    path.write_bytes(
        rng.choice(
            (
                b"", b"\n", b"\x00" * 100, b"\xef\xbb\xbf" + content,
                content.replace(b"\n", b"\r\n"),
                content + content, b"\n".join(rng.sample(lines, len(lines))), content.rstrip(b"\n"),
                content.decode("latin-1").encode("utf-16"), rng.choice(RAW), rng.randbytes(200),
            )
        )
    )  # fmt: skip


def _value(path: Path, rng: random.Random) -> None:
    """Replace, drop, rename or repeat one value of a JSON file or of one of its rows."""
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
    raw: bytes | None = None
    match rng.randrange(6):
        case 0 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case 1:
            del holder[key]
        case 2:
            raw = rng.choice(RAW)
            holder[key] = "\u2603 here"
        case 3 if isinstance(holder, list):
            holder.extend(holder[:1] * rng.choice((1, 50)))
        case _:
            holder[key] = rng.choice(VALUES)
    text = json.dumps(value).encode()
    if raw is not None:
        text = text.replace(json.dumps("\u2603 here").encode(), raw)
    elif isinstance(value, dict) and value and rng.random() < 0.1:
        text = b"{" + json.dumps(next(iter(value))).encode() + b": 1, " + text[1:]
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
    match rng.randrange(6):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to(path.name)
        case 3:
            path.symlink_to("nowhere")
        case 4:
            path.symlink_to("/dev/zero")
        case 5:
            (path.parent / "elsewhere").mkdir(exist_ok=True)
            shutil.rmtree(path.parent / "elsewhere")


KINDS: tuple[tuple[str, Callable[[Path, random.Random], None]], ...] = (
    ("bytes", _bytes),
    ("truncated", _truncated),
    ("whole", _whole),
    ("value", _value),
    ("gone", _gone),
)
WEIGHTS = (4, 1, 2, 12, 1)
