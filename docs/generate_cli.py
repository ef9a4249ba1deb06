"""Writes docs/cli.md from the help of the command ``tandem``.

Run ``python docs/generate_cli.py`` after a change of the commands; a test fails until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from tandem_plugin.cli import app

PAGE = Path(__file__).with_name("cli.md")

HEAD = """\
# The command `tandem`

Written by `docs/generate_cli.py` from the command's own help.

An error is a sentence on stderr and exit code 1, or 2 for a wrong command line. With `--json` it
is `{"error": "..."}` on stdout, and a result is one JSON object there, and nothing else; commands
that print results take it. Arguments, in upper case, come in the order of the tables.
"""


_SHARED = ("help", "json")
"""Options of all commands, or of all that print a result: the head has them."""


def page() -> str:
    """The whole page."""
    root: Any = get_command(app)
    parts = [HEAD, *_parameters(root)]
    for name, command in _commands(root, "tandem"):
        parts.append(f"## {name}\n")
        parts.append(f"{_flowed(command.help)}\n")
        parts.extend(_parameters(command))
    return "\n".join(parts)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The commands of a group by their full names, those of groups within it included."""
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _parameters(command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in _SHARED]
    if arguments or options:
        yield "| | |\n|---|---|"
    for argument in arguments:
        yield f"| `{argument.name.upper()}` | {_cell(argument.help)} |"
    for option in options:
        yield f"| {_names(option)} | {_cell(option.help)}{_default(option)} |"
    yield ""


def _names(option: Any) -> str:
    return ", ".join(f"`{name}{_value(option)}`" for name in option.opts)


def _value(option: Any) -> str:
    if option.is_flag:
        return ""
    return f" {option.metavar or option.name.upper()}"


def _default(option: Any) -> str:
    if option.is_flag or option.default is None:
        return ""
    return f" Default: `{getattr(option.default, 'value', option.default)}`."


def _cell(text: str) -> str:
    """Help as text of a table's cell, in which brackets would begin a link."""
    return text.replace("[", r"\[").replace("]", r"\]")


def _flowed(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
