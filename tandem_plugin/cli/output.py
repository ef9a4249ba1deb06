"""How commands print: tables for people, one JSON object for programs, errors as sentences."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

__all__ = ["INTERRUPTED", "JsonOption", "print_error", "print_json"]

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
