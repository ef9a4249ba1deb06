"""The command ``tandem``. One command a file; heavy imports happen inside the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from tandem_plugin._version import __version__
from tandem_plugin.cli.boundaries import boundaries
from tandem_plugin.cli.compare import compare
from tandem_plugin.cli.data import data
from tandem_plugin.cli.doctor import doctor
from tandem_plugin.cli.eval import evaluate
from tandem_plugin.cli.grade import grade
from tandem_plugin.cli.output import JsonOption, print_json
from tandem_plugin.cli.path import path
from tandem_plugin.cli.plan import plan
from tandem_plugin.cli.plugins import plugins
from tandem_plugin.cli.replay import replay
from tandem_plugin.cli.report import report
from tandem_plugin.cli.rollout import rollout
from tandem_plugin.cli.root import TandemGroup
from tandem_plugin.cli.view import view

__all__ = ["app", "main"]

app = typer.Typer(
    cls=TandemGroup,
    help="Tandem reinforcement learning: a senior and a junior write one response together.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(doctor)
app.command()(plan)
app.command()(boundaries)
app.command()(rollout)
app.command()(replay)
app.command()(plugins)
app.command()(view)
app.command()(grade)
app.command()(path)
app.command()(compare)
app.command()(report)
app.add_typer(data, name="data")
app.add_typer(evaluate, name="eval")


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
