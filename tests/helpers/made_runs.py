"""Runs of recipes that no trainer does: what would be started, as lists of arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tandem_plugin.lab.recipes.run import Run, resolved, trainer_of
from tandem_plugin.lab.recipes.settings import Recipe

TRAINERS = ("verl", "openrlhf", "trl", "skyrl")
PAPER: dict[str, Any] = {
    "model": "Qwen/Qwen3-4B-Instruct-2507",
    "problems": "deepscaler",
    "gpus": 2,
    "max_response": 3000,
    "steps": None,
}
"""The settings of the paper's run."""


def made_run(trainer: str, folder: Path, *arguments: str, **settings: Any) -> Run:
    """The paper's run by a trainer with these settings; folder: of the recipe."""
    recipe = Recipe(trainer=trainer, **{**PAPER, **settings})
    ending = trainer_of(trainer).FORMAT
    files = [folder / "data" / f"{name}.{ending}" for name in ("train", "heldout")]
    return resolved(recipe, folder, arguments, *files)


def command_of(run: Run) -> list[str]:
    """The trainer's command, without the interpreter."""
    return list(trainer_of(run.recipe.trainer).command(run).arguments[1:])
