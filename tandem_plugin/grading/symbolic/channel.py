"""Messages between processes: JSON behind its length. Nothing is unpickled."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

__all__ = ["ChannelClosedError", "receive", "send"]

_LENGTH = struct.Struct("!I")
_MAX_BYTES = 2**24


class ChannelClosedError(EOFError):
    """The other end is gone."""


def send(end: socket.socket, message: dict[str, Any]) -> None:
    """Send one message. Raises :class:`ChannelClosedError`."""
    data = json.dumps(message).encode("ascii")
    try:
        end.sendall(_LENGTH.pack(len(data)) + data)
    except OSError as error:
        raise ChannelClosedError(str(error)) from error


def receive(end: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """The next message, by the deadline on the monotonic clock.

    Raises :class:`TimeoutError`, and :class:`ChannelClosedError`.
    """
    (length,) = _LENGTH.unpack(_exactly(end, _LENGTH.size, deadline))
    if length > _MAX_BYTES:
        raise ChannelClosedError("A message is longer than any.")
    message = json.loads(_exactly(end, length, deadline))
    if not isinstance(message, dict):
        raise ChannelClosedError("A message is no object.")
    return message


def _exactly(end: socket.socket, count: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([end], [], [], left)[0]:
                raise TimeoutError
        try:
            part = end.recv(count)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not part:
            raise ChannelClosedError("The other end closed.")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
