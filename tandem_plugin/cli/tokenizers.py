"""Which tokenizer a command reads."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tandem_plugin.errors import TokenizerError
from tandem_plugin.files import is_hub_name, look_again, read_file, told
from tandem_plugin.files.strict_json import parse_json

if TYPE_CHECKING:
    from tandem_plugin.boundaries import Vocabulary

__all__ = ["check_files", "find_tokenizer", "model_files", "read_vocabulary"]

_FOLDERS = ("tokenizer", "checkpoint")
_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json")
_MODEL_FILES = {".safetensors", ".bin", ".json", ".model", ".tiktoken", ".jinja", ".txt", ".py"}
"""How the files of a checkpoint's or a tokenizer's folder end."""


def read_vocabulary(tokenizer: str) -> Vocabulary:
    """The vocabulary of a tokenizer folder, file, or name on the Hugging Face Hub.

    Raises :class:`TokenizerError` where nothing of the kind is there.
    """
    from tandem_plugin.boundaries import Vocabulary

    if not os.path.exists(tokenizer) and not is_hub_name(tokenizer):
        raise TokenizerError(
            f"There is no tokenizer at {tokenizer!r}: give a tokenizer folder, a tokenizer.json, a "
            "JSON object of token to id, or the name of a repository (owner/name). "
            f"{look_again(tokenizer)}"
        )
    try:
        check_files(tokenizer)
        return Vocabulary.from_path(tokenizer)
    except OSError as error:
        raise TokenizerError(
            f"The tokenizer {tokenizer!r} cannot be read: {told(error)}"
        ) from error


def model_files(model: str) -> list[Path]:
    """The files that a checkpoint or a tokenizer is read from; none for a name on the Hub."""
    place = Path(model)
    if not os.path.isdir(place):
        return [place]
    return [file for file in place.iterdir() if file.suffix in _MODEL_FILES]


def check_files(tokenizer: str) -> None:
    """Raise OSError for a pipe in a tokenizer's place: its reader would wait for ever."""
    for file in model_files(tokenizer):
        if os.path.exists(file) and not (os.path.isfile(file) or os.path.isdir(file)):
            raise OSError(errno.EINVAL, f"{file.name} is no regular file", str(file))


def find_tokenizer(rollouts: Path) -> str:
    """The tokenizer of a file or folder of rollouts: of the senior that wrote it, or beside it.

    Raises :class:`TokenizerError` where there is none, and :class:`RolloutError` for a file that
    holds no rollouts, whichever tokenizer it would need.
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
    raise TokenizerError(
        f"No tokenizer lies beside {str(rollouts)!r} (in {looked}): give one with --tokenizer."
    )


def _check_first_row(rollouts: Path) -> None:
    """Raise :class:`RolloutError` unless the first file's first row is a rollout."""
    from tandem_plugin.rollouts.files import rollout_files
    from tandem_plugin.rollouts.rollout import MalformedRow, RolloutError, read_rollouts

    file = rollout_files(rollouts)[0]
    first = next(read_rollouts(file), None)
    if first is None:
        raise RolloutError(f"{str(file)!r} is empty. Give a file with rollouts.")
    if isinstance(first, MalformedRow):
        raise RolloutError(f"{str(file)!r} holds no rollouts. Line {first.line}: {first.message}")


def _noted_senior(rollouts: Path) -> str | None:
    """The senior that ``tandem rollout`` noted, unless its folder is gone."""
    from tandem_plugin.rollouts.rollout_file import run_file

    try:
        senior = parse_json(read_file(run_file(rollouts)))["senior"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    known = isinstance(senior, str) and (os.path.exists(senior) or is_hub_name(senior))
    return senior if known else None
