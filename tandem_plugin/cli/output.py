"""How commands print: tables for people, one JSON object for programs, errors as sentences."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["INTERRUPTED", "JsonOption", "print_error", "print_json", "table_console"]

_WIDE = 10_000

INTERRUPTED = 130
"""The exit code of a command that was interrupted, as shells have it."""

JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object to stdout, and nothing else there."),
]


def print_json(value: Any) -> None:
    """Print one JSON object to stdout. Numbers that JSON lacks (not a number) become null."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def print_error(message: str, as_json: bool) -> None:
    """Print why a command failed: to stderr, or as ``{"error": ...}`` to stdout."""
    if as_json:
        print_json({"error": message})
    else:
        typer.echo(f"Error: {message}", err=True)


def table_console(stderr: bool = False) -> Console:
    """Where tables are printed: as wide as a terminal; in a log or a pipe, lines stay whole."""
    from rich.console import Console

    console = Console(highlight=False, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    return console
