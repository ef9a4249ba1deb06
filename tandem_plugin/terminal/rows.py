"""Files of rows that a command reads, of which ``-`` is standard input."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import typer

__all__ = ["rows_of_stdin"]

_Given = TypeVar("_Given", str, Path)


def rows_of_stdin(ctx: typer.Context, given: _Given) -> _Given:
    """For ``-``, a JSON Lines file with the rows of standard input; otherwise what was given.

    The file exists until the command ends: some commands read their rows more than once.
    """
    if str(given) != "-" or ctx.resilient_parsing:
        return given
    file = Path(ctx.with_resource(TemporaryDirectory()), "stdin.jsonl")
    with file.open("wb") as rows:
        shutil.copyfileobj(sys.stdin.buffer, rows)
    return type(given)(file)
