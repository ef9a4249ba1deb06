"""Files of lines that a command appends to: what a killed run left of its last line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tandem_plugin.files.user_files import open_file

__all__ = ["ForeignLineError", "WholeLines", "read_appended"]


class ForeignLineError(ValueError):
    """A line that the command did not write."""

    def __init__(self, line: int, reason: ValueError) -> None:
        super().__init__(str(reason))
        self.line = line


class WholeLines(NamedTuple):
    """What of a file is whole; what lies behind it is of a line that was torn."""

    size: int
    """Bytes of whole lines."""
    ends: bool
    """False where the last of them is whole but for its end."""


def read_appended(path: Path, begin: bytes, take: Callable[[bytes], None]) -> WholeLines:
    """Give every line of a file to ``take``, blank ones left out.

    begin: how every line begins. take: raises ValueError for what is no line of the command. The
    last line may lack its end: it counts where it can be taken, and is torn where it cannot but
    begins as all do. Raises :class:`ForeignLineError` for any other line, so that nothing else is
    ever cut off, and OSError where the file cannot be read.
    """
    whole = 0
    with open_file(path) as lines:
        for number, line in enumerate(lines, 1):
            ends = line.endswith(b"\n")
            try:
                if line.strip():
                    take(line)
            except ValueError as error:
                if ends or not begin.startswith(line[: len(begin)]):
                    raise ForeignLineError(number, error) from error
                return WholeLines(whole, True)
            whole += len(line)
            if not ends:
                return WholeLines(whole, False)
    return WholeLines(whole, True)
