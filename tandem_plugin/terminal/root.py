"""The command group: turns any error of a command into a message and an exit code."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, get_args, get_type_hints, runtime_checkable

import typer
from typer.core import TyperCommand, TyperGroup

from tandem_plugin.errors import (
    ConfigError,
    TandemError,
    did_you_mean,
    printable,
    validation_reason,
)
from tandem_plugin.terminal.arguments import with_home
from tandem_plugin.terminal.output import INTERRUPTED, print_error
from tandem_plugin.variables import check_variables

_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE)
"""Why a standard output cannot be written; of a file, the error would have its name."""

_AS_JSON = "tandem_plugin.cli.as_json"


@runtime_checkable
class _UsageError(Protocol):
    """The errors that typer raises for a wrong command line, whichever copy of click it carries."""

    exit_code: int
    message: str

    def format_message(self) -> str: ...


class TandemGroup(TyperGroup):
    """Exit code 1 for a tandem error, 2 for a wrong command line; both respect --json."""

    def make_context(
        self, info_name: str | None, args: list[str], *positional: Any, **extra: Any
    ) -> Any:
        as_json = "--json" in args
        if args[:1] == ["--json"] and args[1:2] and not args[1].startswith("-"):
            # Of the command, wherever it stands; what follows -- is no option.
            end = args.index("--") if "--" in args else len(args)
            args = [*args[1:end], "--json", *args[end:]]
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names and texts may contain characters that the terminal's encoding lacks; stderr
            # escapes them.
            sys.stdout.reconfigure(errors="backslashreplace")
        with _reported(as_json):
            context = super().make_context(info_name, args, *positional, **extra)
        context.meta[_AS_JSON] = as_json
        return context

    def invoke(self, ctx: Any) -> Any:
        with _reported(ctx.meta[_AS_JSON]):
            check_variables()
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """As of typer; options say in its help what they take in plain words."""
        root: Any = super().get_command(ctx, cmd_name)
        for command in [root, *getattr(root, "commands", {}).values()]:
            hints = get_type_hints(getattr(command, "callback", None) or _reported)
            for option in getattr(command, "params", ()):
                if option.param_type_name == "option" and option.metavar is None:
                    option.metavar = _metavar(hints.get(option.name))
        return root


class TandemCommand(TyperCommand):
    """A command that expands ``~`` in its words, and rejects an option that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As of typer, which would take the last value of an option; raises :class:`ConfigError`.

        What follows ``--`` belongs to a different program, and stays as it is.
        """
        end = args.index("--") if "--" in args else len(args)
        args = [*map(with_home, args[:end]), *args[end:]]
        parser = self.make_parser(ctx)
        single: list[Any] = [option for option in self.params if _takes_one_value(option)]
        for option in single:
            parser.add_option(option, option.opts, option.name, action="append")
        values = {} if ctx.resilient_parsing else parser.parse_args(list(args))[0]
        for option in single:
            if len(values.get(option.name, ())) > 1:
                repeated = " and ".join(map(repr, values[option.name]))
                raise ConfigError("option-given-twice", option=option.opts[0], values=repeated)
        remaining: list[str] = super().parse_args(ctx, args)
        return remaining


def _takes_one_value(option: Any) -> bool:
    return option.param_type_name == "option" and not (option.multiple or option.is_flag)


def _metavar(hint: Any) -> str | None:
    """What a value of this type is called; None leaves it to typer, as for flags and choices."""
    names = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
    inner = [_metavar(inner_hint) for inner_hint in get_args(hint)]
    return names.get(hint) or next(filter(None, inner), None)


def _plain(message: str) -> str:
    """A message of typer's in which pydantic's words, if any, are ours."""
    if choice := re.search(r"'(.*)' is not one of (.*)\.$", message):
        message += did_you_mean(choice[1], re.findall(r"'(.*?)'", choice[2]))
    where, colon, reason = message.partition(": ")
    if where.startswith("Invalid value"):
        return f"{where}{colon}{validation_reason(reason)}"
    return validation_reason(message)


@contextmanager
def _reported(as_json: bool) -> Iterator[None]:
    try:
        yield
    except TandemError as error:
        print_error(str(error), as_json)
        raise typer.Exit(1) from error
    except OSError as error:
        if error.filename is None and error.errno in _OF_OUTPUT:
            raise  # to :func:`reported_output`
        where = "" if error.filename is None else f"{os.fspath(error.filename)!r}: "
        print_error(f"{where}{error.strerror or error}.", as_json)
        raise typer.Exit(1) from error
    except ModuleNotFoundError as error:
        print_error(str(TandemError("package-missing", package=error.name)), as_json)
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        print_error("Interrupted.", as_json)
        raise typer.Exit(INTERRUPTED) from error
    except Exception as error:
        if isinstance(error, _UsageError):
            error.message = printable(_plain(error.message))
        if not (as_json and isinstance(error, _UsageError)):
            raise
        print_error(error.format_message(), as_json)
        raise typer.Exit(error.exit_code) from error


@contextmanager
def reported_output() -> Iterator[None]:
    """Report a standard output that cannot be written, such as on a full disk; exit with code 1.

    A pipe that was closed is no error to report.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # it was closed
                sys.stdout.flush()
    except OSError as error:
        # What is left of the output could not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            reason = error.strerror or error
            print_error(f"The output cannot be written: {reason}.", as_json=False)
        sys.exit(1)
