"""``tandem path``: where the files are that other programs are given by their path."""

from __future__ import annotations

import importlib.util
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tandem_plugin.terminal.output import JsonOption, print_json

__all__ = ["path"]


class File(str, Enum):
    """What has a path."""

    REWARD_VERL = "reward-verl"
    REWARD_OPENRLHF = "reward-openrlhf"
    WITHOUT_FLASH_ATTN = "without-flash-attn"


def path(
    file: Annotated[
        File,
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
    """Print the path of a file in this package that another program needs."""
    found = _place(file)
    if json:
        print_json({"file": file.value, "path": str(found)})
    else:
        typer.echo(str(found))


def _place(file: File) -> Path:
    """Where it is; nothing of a trainer is imported for that."""
    if file is File.WITHOUT_FLASH_ATTN:
        adapter = importlib.util.find_spec("tandem_openrlhf")
        assert adapter is not None, "it is part of this distribution"
        assert adapter.origin is not None
        return Path(adapter.origin).with_name("without_flash_attn")
    from tandem_plugin.grading.rewards import reward_file

    return reward_file(file.value.removeprefix("reward-"))
