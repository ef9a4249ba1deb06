"""The command ``tandem``. One command a file; heavy imports happen inside the commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from tandem_plugin._version import __version__
from tandem_plugin.cli.boundaries import boundaries
from tandem_plugin.cli.doctor import doctor
from tandem_plugin.cli.path import path
from tandem_plugin.cli.plugins import plugins
from tandem_plugin.lab.commands.compare import compare, report
from tandem_plugin.lab.commands.data import data
from tandem_plugin.lab.commands.drafts import drafts
from tandem_plugin.lab.commands.eval import evaluate
from tandem_plugin.lab.commands.grade import grade
from tandem_plugin.lab.commands.plan import plan
from tandem_plugin.lab.commands.replay import replay
from tandem_plugin.lab.commands.rollout import rollout
from tandem_plugin.lab.commands.view import view
from tandem_plugin.terminal.output import JsonOption, print_json
from tandem_plugin.terminal.root import TandemGroup

__all__ = ["app", "main"]

_ORDER: list[str] = []


class _InOrder(TandemGroup):
    """typer puts groups of commands behind all single ones; help has them where they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_ORDER)


app = typer.Typer(
    cls=_InOrder,
    help="Tandem reinforcement learning: a senior and a junior write one response together.",
    epilog="Help for a command: tandem rollout -h",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_BEFORE, _TOGETHER, _AFTER = "Before a run", "Responses of a team", "Results of training"


def _add(command: Callable[..., None], heading: str, short: str) -> None:
    """A command under its heading. short: one line of at most 64 characters, as help lists it."""
    _ORDER.append(command.__name__)
    app.command(rich_help_panel=heading, short_help=short)(command)


def _add_group(group: typer.Typer, name: str, heading: str, short: str) -> None:
    _ORDER.append(name)
    app.add_typer(group, name=name, rich_help_panel=heading, short_help=short)


# In the order in which they are used.
_add(doctor, _BEFORE, "Check GPUs, versions, plugins and known traps.")
_add(plan, _BEFORE, "Show whether two models fit the GPUs, and the flags to set.")
_add(drafts, _BEFORE, "Time the speculative mode here, and print a table of drafts.")
_add_group(data, "data", _BEFORE, "Problem sets: prepare, check for overlap, show.")
_add(plugins, _BEFORE, "List schedules and boundary resolvers, including plugins'.")
_add(boundaries, _BEFORE, "Count the boundaries in a tokenizer's vocabulary.")
_add(path, _BEFORE, "Print the path of a file that a trainer needs.")
_add(rollout, _TOGETHER, "Let senior and junior answer problems, into one file.")
_add(grade, _TOGETHER, "Grade responses by the answers in their last boxes.")
_add(view, _TOGETHER, "Write an HTML page of rollouts, coloured by author.")
_add(replay, _TOGETHER, "Recompute every author and compare with the record.")
_add_group(evaluate, "eval", _AFTER, "Evaluate seniors: alone, with juniors, drift, legibility.")
_add(compare, _AFTER, "Print the paper's tables for two or more seniors.")
_add(report, _AFTER, "Write an HTML page of figures and tables.")


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    json: JsonOption = False,
) -> None:
    if not version:
        return
    if json:
        print_json({"version": __version__})
    else:
        typer.echo(f"tandem-plugin {__version__}")
    raise typer.Exit


def main() -> None:
    """The console script."""
    app()
