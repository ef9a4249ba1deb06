"""Which files the rollouts of a run lie in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tandem_plugin.files import look_again
from tandem_plugin.lab.rollouts.grades import is_grades_file
from tandem_plugin.lab.rollouts.rollout import RolloutError

__all__ = ["file_step", "rollout_files"]


def rollout_files(path: Path) -> list[Path]:
    """The file itself, or the ``.jsonl`` files of a folder of dumps, 2 before 10, without grades.

    Raises :class:`RolloutError` where there is none.
    """
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise RolloutError(
            f"There is no file {str(path)!r}, and no folder of that name. {look_again(path)}"
        )
    found = [file for file in path.iterdir() if file.suffix == ".jsonl" and os.path.isfile(file)]
    files = sorted((file for file in found if not is_grades_file(file)), key=_in_order)
    if not files:
        raise RolloutError(
            f"The folder {str(path)!r} holds no rollouts: no file ends in .jsonl. Give the folder "
            "that `tandem rollout`, `tandem eval` or a trainer wrote them to."
        )
    return files


def file_step(path: Path) -> int | None:
    """The training step that a dump is named for, as in ``120.jsonl``; None for another name."""
    return int(path.stem) if re.fullmatch("[0-9]{1,9}", path.stem) else None


def _in_order(path: Path) -> list[tuple[int, str]]:
    parts = re.findall("[0-9]+|[^0-9]+", path.name)
    return [(int(part[:18]), "") if part[0].isdecimal() else (-1, part) for part in parts]
