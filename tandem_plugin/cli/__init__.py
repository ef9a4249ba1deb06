"""The command ``tandem``, and ``tandem path``. Other commands have a file each.

Heavy imports happen inside the commands.
"""

from __future__ import annotations

import platform
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import typer

from tandem_plugin._version import __version__
from tandem_plugin.cli.doctor import doctor as doctor_command
from tandem_plugin.cli.plugins import plugins as plugins_command
from tandem_plugin.lab.commands.compare import compare, report
from tandem_plugin.lab.commands.data import data
from tandem_plugin.lab.commands.drafts import drafts
from tandem_plugin.lab.commands.eval import evaluate
from tandem_plugin.lab.commands.init import init
from tandem_plugin.lab.commands.plan import plan
from tandem_plugin.lab.commands.replay import replay
from tandem_plugin.lab.commands.rollout import rollout
from tandem_plugin.lab.commands.show import show
from tandem_plugin.lab.commands.train import train
from tandem_plugin.lab.commands.view import view
from tandem_plugin.terminal.output import JsonOption, print_json
from tandem_plugin.terminal.root import TandemCommand, TandemGroup, reported_output

__all__ = ["app", "main"]


def path(
    file: Annotated[
        Literal["reward-verl", "reward-openrlhf", "without-flash-attn"],
        typer.Argument(
            help="reward-verl: for verl's reward.custom_reward_function.path. "
            "reward-openrlhf: for OpenRLHF's --reward.remote_url. "
            "without-flash-attn: a folder for PYTHONPATH that lets OpenRLHF start "
            "without flash-attn.",
            show_choices=True,
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Print the path of a file in this package for use by other programs."""
    if file == "without-flash-attn":
        # The adapter as a package imports nothing of a trainer.
        location = Path(str(files("tandem_openrlhf"))) / "without_flash_attn"
    else:
        from tandem_plugin.grading.rewards import reward_file

        location = reward_file(file.removeprefix("reward-"))
    if json:
        print_json({"file": file, "path": str(location)})
    else:
        typer.echo(str(location))


app = typer.Typer(
    cls=TandemGroup,
    help="Tandem reinforcement learning: a senior and a junior write one response together.",
    epilog="Help for a command: tandem rollout -h",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

command = partial(app.command, cls=TandemCommand)
command(short_help="Write a trainer's recipe and tested versions.")(init)
command(short_help="Start the run that a recipe describes, or resume it.")(train)
command(short_help="Check GPUs, versions, plugins and known traps.")(doctor_command)
command(short_help="Show whether two models fit the GPUs, and the flags to set.")(plan)
command(short_help="Time the speculative mode here, and print a table of drafts.")(drafts)
app.add_typer(data, name="data", short_help="Prepare problem sets for a trainer.")
command(short_help="List schedules and boundary resolvers, plugins' included.")(plugins_command)
command(short_help="Print the path of a file that a trainer needs.")(path)
command(short_help="Let senior and junior answer problems, into one file.")(rollout)
command(short_help="Write an HTML page of rollouts, coloured by author.")(view)
command(short_help="Print one response in the terminal, coloured by author.")(show)
command(short_help="Recompute every author and compare with the record.")(replay)
command("eval", short_help="Evaluate seniors: alone, with juniors, drift.")(evaluate)
command(short_help="Print the paper's tables for two or more seniors.")(compare)
command(short_help="Write an HTML page of figures and tables.")(report)


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the versions of tandem-plugin and what it runs on."),
    ] = False,
    json: JsonOption = False,
) -> None:
    if not version:
        return
    from tandem_plugin.cli.doctor import installed_versions

    stack = {"Python": platform.python_version(), **installed_versions()}
    if json:
        print_json({"version": __version__, "stack": stack})
    else:
        typer.echo(f"tandem-plugin {__version__}")
        for name, installed in stack.items():
            typer.echo(f"{name} {installed}")
    raise typer.Exit


def main() -> None:
    """The console script."""
    with reported_output():
        app(prog_name="tandem")
