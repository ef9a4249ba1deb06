"""``tandem path``: the paths of files that other programs need."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

import typer

from tandem_plugin.terminal.output import JsonOption, print_json

__all__ = ["path"]


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
    """Print the path of a file in this package that another program needs."""
    if file == "without-flash-attn":
        # Nothing of a trainer is imported for this.
        adapter = importlib.util.find_spec("tandem_openrlhf")
        assert adapter is not None
        assert adapter.origin is not None
        found = Path(adapter.origin).with_name("without_flash_attn")
    else:
        from tandem_plugin.grading.rewards import reward_file

        found = reward_file(file.removeprefix("reward-"))
    if json:
        print_json({"file": file, "path": str(found)})
    else:
        typer.echo(str(found))
