"""``tandem path``: where the files are that other programs are given by their path."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from tandem_plugin.cli.output import JsonOption, print_json

__all__ = ["path"]


class File(str, Enum):
    """What has a path."""

    REWARD_VERL = "reward-verl"
    REWARD_OPENRLHF = "reward-openrlhf"


def path(
    file: Annotated[
        File,
        typer.Argument(
            help="reward-verl: for reward.custom_reward_function.path of verl. reward-openrlhf: "
            "for --reward.remote_url of OpenRLHF.",
            show_choices=True,
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Print the path of a file of this package that another program asks for."""
    from tandem_plugin.grading.rewards import reward_file

    found = reward_file(file.value.removeprefix("reward-"))
    if json:
        print_json({"file": file.value, "path": str(found)})
    else:
        typer.echo(str(found))
