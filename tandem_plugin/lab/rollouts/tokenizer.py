"""Finds the tokenizer that a rollout file was written with."""

from __future__ import annotations

import os
from pathlib import Path

from tandem_plugin.errors import TokenizerError
from tandem_plugin.files import is_hub_name, read_file
from tandem_plugin.files.strict_json import parse_json
from tandem_plugin.lab.rollouts.rollout import MalformedRow, RolloutError, read_rollouts
from tandem_plugin.lab.rollouts.rollout_file import rollout_files, run_file

__all__ = ["find_tokenizer"]

_FOLDERS = ("tokenizer", "checkpoint")
_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json")


def find_tokenizer(rollouts: Path) -> str:
    """The tokenizer of a file or folder of rollouts: that of its senior, or the one next to it.

    Raises :class:`TokenizerError` if there is none, and :class:`RolloutError` for a file without
    rollouts, whichever tokenizer it would need.
    """
    _check_first_row(rollouts)
    noted = _noted_senior(rollouts)
    if noted is not None:
        return noted
    places = [rollouts.parent]
    if os.path.isdir(rollouts):
        places = [rollouts, rollouts.resolve().parent]
        for note in sorted(rollouts.glob("*.run.json")):
            noted = _noted_senior(note.with_name(note.name.removesuffix(".run.json")))
            if noted is not None:
                return noted
    for folder in (place / name for place in places for name in _FOLDERS):
        if any(os.path.isfile(folder / file) for file in _FILES):
            return str(folder)
    looked = " or ".join(f"{name}/" for name in _FOLDERS)
    raise TokenizerError("TP790", rollouts=rollouts, looked=looked)


def _check_first_row(rollouts: Path) -> None:
    """Raise :class:`RolloutError` unless the first file's first row is a rollout."""
    file = rollout_files(rollouts)[0]
    first = next(read_rollouts(file), None)
    if first is None:
        raise RolloutError("TP791", file=file)
    if isinstance(first, MalformedRow):
        raise RolloutError("TP792", file=file, line=first.line, message=first.message)


def _noted_senior(rollouts: Path) -> str | None:
    """The senior that ``tandem rollout`` noted, unless its folder is gone."""
    try:
        senior = parse_json(read_file(run_file(rollouts)))["senior"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    known = isinstance(senior, str) and (os.path.exists(senior) or is_hub_name(senior))
    return senior if known else None
