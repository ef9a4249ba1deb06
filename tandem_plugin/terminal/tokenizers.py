"""Which tokenizer a command reads."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tandem_plugin.errors import TokenizerError
from tandem_plugin.files import is_hub_name, look_again, system_advice, system_reason

if TYPE_CHECKING:
    from tandem_plugin.boundaries import Vocabulary

__all__ = ["check_files", "model_files", "read_vocabulary"]

_MODEL_FILES = {".safetensors", ".bin", ".json", ".model", ".tiktoken", ".jinja", ".txt", ".py"}
"""How the files of a checkpoint's or a tokenizer's folder end."""


def read_vocabulary(tokenizer: str) -> Vocabulary:
    """The vocabulary of a tokenizer folder, file, or name on the Hugging Face Hub.

    Raises :class:`TokenizerError` if there is none.
    """
    from tandem_plugin.boundaries import Vocabulary

    if not os.path.exists(tokenizer) and not is_hub_name(tokenizer):
        raise TokenizerError("TP991", tokenizer=tokenizer, hint=look_again(tokenizer))
    try:
        check_files(tokenizer)
        return Vocabulary.from_path(tokenizer)
    except OSError as error:
        raise TokenizerError(
            "TP992", tokenizer=tokenizer, reason=system_reason(error), advice=system_advice(error)
        ) from error


def model_files(model: str) -> list[Path]:
    """The files that a checkpoint or a tokenizer is read from; none for a name on the Hub."""
    place = Path(model)
    if not os.path.isdir(place):
        return [place]
    return [file for file in place.iterdir() if file.suffix in _MODEL_FILES]


def check_files(tokenizer: str) -> None:
    """Raise OSError for a pipe in a tokenizer's place, whose reader would wait forever."""
    for file in model_files(tokenizer):
        if os.path.exists(file) and not (os.path.isfile(file) or os.path.isdir(file)):
            raise OSError(errno.EINVAL, f"{file.name} is not a regular file", str(file))
