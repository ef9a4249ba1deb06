"""``tandem init``: a trainer's recipe in a folder, and the commands that follow."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tandem_plugin.lab.recipes.stacks import NEWEST_PYTHON, STACKS, Stack, write_recipe
from tandem_plugin.terminal.output import JsonOption, echo, print_json


def _stack(trainer: str) -> Stack:
    """The trainer's stack; typer's own error, with what exists, for another name."""
    if trainer not in STACKS:
        raise typer.BadParameter(f"{trainer!r} is not one of {', '.join(map(repr, STACKS))}.")
    return STACKS[trainer]


def init(
    trainer: Annotated[
        Stack,
        typer.Argument(
            parser=_stack,
            metavar="|".join(STACKS),
            autocompletion=lambda: list(STACKS),
            help=f"The trainer: {', '.join(STACKS)}.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output folder. Default: tandem-TRAINER."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a trainer's recipe and its tested versions to a folder.

    recipe.yaml describes the run: model, problems, GPUs, steps and more, each with its default.
    constraints.txt pins every package to its tested version. Then it prints the commands that
    install, check and train. Nothing that exists is overwritten.
    """
    folder = Path(f"tandem-{trainer.trainer}") if out is None else out.expanduser()
    files = write_recipe(trainer, folder)
    commands = [
        f"cd {shlex.quote(str(folder))} && {trainer.install}",
        f"tandem doctor {trainer.trainer}",
        "tandem train",
    ]
    if json:
        written = [str(file) for file in files]
        print_json({"folder": str(folder), "files": written, "commands": commands})
        return
    echo(f"Wrote {' and '.join(file.name for file in files)} to {folder}.")
    for note in _notes(trainer):
        echo(note)
    echo("Next: install the tested versions, check them, and train; recipe.yaml says what.\n")
    for command in commands:
        echo(f"  {command}")


def _notes(stack: Stack) -> list[str]:
    """What stands between this environment and a run of the trainer."""
    from tandem_plugin.patching.versions import installed_version

    notes = []
    other_trainers = [name for name in STACKS if name != stack.trainer and installed_version(name)]
    if other_trainers and not installed_version(stack.trainer):
        notes.append(
            f"This environment has {' and '.join(other_trainers)}, and each trainer needs its own: "
            "make a new one first, with python3 -m venv."
        )
    if not stack.least_python <= sys.version_info[:2] <= NEWEST_PYTHON:
        versions = dict.fromkeys((stack.least_python, NEWEST_PYTHON))
        tested = " to ".join(".".join(map(str, version)) for version in versions)
        notes.append(
            f"The tested versions are for Python {tested}, and this one is "
            f"{platform.python_version()}."
        )
    return notes
