"""What commands are given: options of the form NAME=VALUE, and - for rows of standard input."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeVar

import typer

from tandem_plugin.errors import ConfigError
from tandem_plugin.files import parse_json

_Given = TypeVar("_Given", str, Path)

SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the schedule, such as p=0.3 or cap=16. Can be repeated.",
    ),
]


_EXAMPLES = {"--engine": "max_model_len=4096", "--template-arg": "enable_thinking=false"}


def assignments(option: str, arguments: Iterable[str]) -> dict[str, Any]:
    """Names and values; a value is parsed as JSON if possible, otherwise kept as text.

    option: the option's name, for the :class:`ConfigError` of a malformed value or a name that is
    given twice.
    """
    example = _EXAMPLES.get(option, "p=0.3")
    values: dict[str, Any] = {}
    for assignment in arguments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise ConfigError(
                "option-not-assignment", option=option, assignment=assignment, example=example
            )
        if name in values:
            raise ConfigError("option-set-twice", option=option, name=name)
        values[name] = value
        with suppress(ValueError):
            parsed = parse_json(value)
            json.dumps(parsed, allow_nan=False)  # NaN and Infinity are Python's own
            values[name] = parsed
    return values


_PATH = re.compile(r"((?:--[^=]*=|-\w(?=~))?(?:[^=]*=(?=~))?)(.*)", re.DOTALL)
"""What stands before a path in a word of a command line, and the path, or any other text."""


def with_home(argument: str) -> str:
    """A word of a command line with ``~`` expanded where a path begins.

    That is the word's own beginning, behind an option (``--out=~``, ``-o~``), and behind a name
    (``base=~``, ``--senior=base=~``). Shells leave it as it is if it is quoted or not at the
    beginning.
    """
    before, path = _PATH.fullmatch(argument).groups()  # type: ignore[union-attr]  # any text
    return before + os.path.expanduser(path)


def rows_of_stdin(ctx: typer.Context, source: _Given) -> _Given:
    """For ``-``, a JSON Lines file with the rows of standard input; otherwise what was given.

    The file exists until the command ends: some commands read their rows more than once.
    """
    if str(source) != "-" or ctx.resilient_parsing:
        return source
    file = Path(ctx.with_resource(TemporaryDirectory()), "stdin.jsonl")
    with file.open("wb") as rows:
        shutil.copyfileobj(sys.stdin.buffer, rows)
    return type(source)(file)
