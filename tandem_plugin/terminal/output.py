"""How commands print: tables for people, one JSON object for programs, errors as messages.

All output for people goes through here, so no control character reaches a terminal: problems,
responses, names and paths are untrusted text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem_plugin.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_WIDE = 10_000

INTERRUPTED = 130
"""The exit code of an interrupted command, as in shells."""

JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object to stdout, and nothing else."),
]


def echo(message: str, err: bool = False) -> None:
    """Print a line for people: to stdout, or to stderr."""
    typer.echo(printable(message), err=err)


def cell(value: object, style: str = "") -> Text:
    """Text for a table: without markup, wrapped if it is too long."""
    from rich.text import Text

    return Text(printable(str(value)), style=style, overflow="fold")


def print_json(value: Any) -> None:
    """Print one JSON object to stdout. Numbers that JSON lacks (NaN) become null."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def print_error(message: str, as_json: bool) -> None:
    """Print why a command failed: to stderr, or as ``{"error": ...}`` to stdout."""
    if as_json:
        print_json({"error": message})
    else:
        echo(f"Error: {message}", err=True)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values side by side."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in fields.items():
        table.add_row(name, cell(value))
    table_console().print(table)


def text_console(is_coloured: bool | None) -> Console:
    """The console for long texts, which are not wrapped here.

    is_coloured: None for colours if stdout is a terminal.
    """
    from tandem_plugin.terminal.safe_console import SafeConsole

    if is_coloured is None:
        return SafeConsole(highlight=False, soft_wrap=True)
    return SafeConsole(
        highlight=False,
        soft_wrap=True,
        force_terminal=is_coloured,
        color_system="standard" if is_coloured else None,
        no_color=not is_coloured,
    )


def table_console() -> Console:
    """The console for tables: as wide as the terminal; lines of logs and pipes are not wrapped."""
    from tandem_plugin.terminal.safe_console import SafeConsole

    console = SafeConsole(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    return console
