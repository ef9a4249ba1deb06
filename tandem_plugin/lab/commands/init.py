"""``tandem init``: a trainer's recipe in a folder, and the commands that follow."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tandem_plugin.lab.recipes import NEWEST_PYTHON, RECIPES, Recipe, write_recipe
from tandem_plugin.terminal.output import JsonOption, echo, print_json


def _recipe(trainer: str) -> Recipe:
    """The trainer's recipe; typer's own error, with what exists, for another name."""
    if trainer not in RECIPES:
        raise typer.BadParameter(f"{trainer!r} is not one of {', '.join(map(repr, RECIPES))}.")
    return RECIPES[trainer]


def init(
    trainer: Annotated[
        Recipe,
        typer.Argument(
            parser=_recipe,
            metavar="|".join(RECIPES),
            autocompletion=lambda: list(RECIPES),
            help=f"The trainer: {', '.join(RECIPES)}.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output folder. Default: tandem-TRAINER."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a trainer's recipe, its settings and its tested versions to a folder.

    train.sh is the recipe: the paper's runs, with every argument of the trainer. settings.sh
    contains what to change: model, problems, GPUs, steps. constraints.txt pins every package to its
    tested version. Then it prints the commands that install, check and train. Nothing that exists
    is overwritten.
    """
    folder = out or Path(f"tandem-{trainer.trainer}")
    files = write_recipe(trainer, folder)
    commands = [
        f"cd {shlex.quote(str(folder))} && {trainer.install}",
        f"tandem doctor {trainer.trainer}",
        "./train.sh tandem",
    ]
    if json:
        written = [str(file) for file in files]
        print_json({"folder": str(folder), "files": written, "commands": commands})
        return
    names = [file.name for file in files]
    echo(f"Wrote {', '.join(names[:-1])} and {names[-1]} to {folder}.")
    for note in _notes(trainer):
        echo(note)
    echo("Next: install the tested versions, check them, and train; settings.sh says what.\n")
    for command in commands:
        echo(f"  {command}")


def _notes(recipe: Recipe) -> list[str]:
    """What stands between this environment and a run of the trainer."""
    from tandem_plugin.patching.versions import installed_version

    notes = []
    others = [name for name in RECIPES if name != recipe.trainer and installed_version(name)]
    if others and not installed_version(recipe.trainer):
        notes.append(
            f"This environment has {' and '.join(others)}, and each trainer needs its own: make a "
            "new one first, with python3 -m venv."
        )
    if not recipe.least_python <= sys.version_info[:2] <= NEWEST_PYTHON:
        versions = dict.fromkeys((recipe.least_python, NEWEST_PYTHON))
        tested = " to ".join(".".join(map(str, version)) for version in versions)
        notes.append(
            f"The tested versions are for Python {tested}, and this one is "
            f"{platform.python_version()}."
        )
    return notes
