"""How commands print: tables for people, one JSON object for programs, errors as sentences.

All that people read goes through here, and no control character of it reaches a terminal: problems,
responses, names and paths are others' text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from tandem_plugin.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = [
    "INTERRUPTED",
    "JsonOption",
    "SafeConsole",
    "Unpadded",
    "cell",
    "echo",
    "print_error",
    "print_fields",
    "print_json",
    "table_console",
]

_WIDE = 10_000

INTERRUPTED = 130
"""The exit code of a command that was interrupted, as shells have it."""

JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object to stdout, and nothing else there."),
]


def echo(message: str, err: bool = False) -> None:
    """Print a line for people: to stdout, or to stderr."""
    typer.echo(printable(message), err=err)


def cell(value: object, style: str = "") -> Text:
    """Text for a table: as it is, without markup, folded where it is too long."""
    from rich.text import Text

    return Text(printable(str(value)), style=style, overflow="fold")


def print_json(value: Any) -> None:
    """Print one JSON object to stdout. Numbers that JSON lacks (not a number) become null."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def print_error(message: str, as_json: bool) -> None:
    """Print why a command failed: to stderr, or as ``{"error": ...}`` to stdout."""
    if as_json:
        print_json({"error": message})
    else:
        echo(f"Error: {message}", err=True)


def print_fields(fields: Mapping[str, object], stderr: bool = False) -> None:
    """Print names and values side by side."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in fields.items():
        table.add_row(name, cell(value))
    table_console(stderr).print(table)


def table_console(stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Where tables are printed: as wide as a terminal; in a log or a pipe, lines stay whole."""

    console = SafeConsole(highlight=False, stderr=stderr, soft_wrap=soft_wrap)
    if not console.is_terminal:
        console.file = cast("IO[str]", Unpadded(console.file))
        if "COLUMNS" not in os.environ:
            console.width = _WIDE
    return console


class Unpadded:
    """A stream that is given no spaces at the ends of lines, with which tables are filled up."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of a text stream; rich writes whole lines."""
        return self._stream.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class SafeConsole(Console):
    """rich's console: its own colours and bars reach the terminal, no text's control characters.

    Text is made :func:`printable` before it is laid out, so that none of it is cut off, and what a
    renderable makes by itself after it.
    """

    def render_str(self, text: str, **how: Any) -> Text:
        """As of rich's ``Console``."""
        return super().render_str(printable(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As of rich's ``Console``."""
        if isinstance(renderable, Text) and printable(renderable.plain) != renderable.plain:
            # Spans are by place, and lost: colours are not worth obeying the text.
            renderable = renderable.blank_copy(printable(renderable.plain))
        for segment in super().render(renderable, options):
            if segment.control or printable(segment.text) == segment.text:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
