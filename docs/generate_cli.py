"""Writes docs/cli.md from the help of the command ``tandem``.

Run ``python docs/generate_cli.py`` after a change of the commands; a test fails until then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
    parts = [HEAD, *_table(_rows(root))]
    described: dict[str, set[str]] = {}
    for name, command in _commands(root, "tandem"):
        rows = _rows(command)
        known = described.setdefault(name.rpartition(" ")[0], set())
        parts += [f"## {name}\n", f"{_flowed(command.help)}\n", *_table(rows, known)]
        known.update(f"{what}{said}" for what, said in rows.items() if name.count(" ") > 1)
    return "\n".join(parts)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The commands of a group by their full names, those of groups within it included."""
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _rows(command: Any) -> dict[str, str]:
    """What each argument and option is, in their order."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in _SHARED]
    return {f"`{one.name.upper()}`": _cell(one.help) for one in arguments} | {
        _names(one): f"{_cell(one.help)}{_default(one)}" for one in options
    }


def _table(rows: Mapping[str, str], known: Collection[str] = ()) -> Iterator[str]:
    """known: rows of other commands of the same group, which are named in one."""
    above = [what for what, said in rows.items() if f"{what}{said}" in known]
    if rows:
        yield "| | |\n|---|---|"
    for what, said in rows.items():
        if what not in above:
            yield f"| {what} | {said} |"
    if above:
        yield f"| {', '.join(above)} | As above. |"
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
