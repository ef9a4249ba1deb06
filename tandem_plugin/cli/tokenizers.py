"""Which tokenizer a command reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tandem_plugin.errors import TokenizerError

if TYPE_CHECKING:
    from tandem_plugin.boundaries import Vocabulary

__all__ = ["find_tokenizer", "read_vocabulary"]

_FOLDERS = ("tokenizer", "checkpoint")
_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json")


def read_vocabulary(tokenizer: str) -> Vocabulary:
    """The vocabulary of a tokenizer folder, file, or name on the Hugging Face Hub.

    Raises :class:`TokenizerError` where nothing of the kind is there.
    """
    from tandem_plugin.boundaries import Vocabulary

    if not Path(tokenizer).exists() and not _is_hub_name(tokenizer):
        raise TokenizerError(
            f"There is no tokenizer at {tokenizer!r}: give a tokenizer folder, a tokenizer.json, "
            "a JSON object of token to id, or the name of a repository (owner/name)."
        )
    return Vocabulary.from_path(tokenizer)


def find_tokenizer(rollouts: Path) -> str:
    """The tokenizer of a file of rollouts: of the senior that wrote it, or beside it.

    Raises :class:`TokenizerError` where there is none.
    """
    noted = _noted_senior(rollouts)
    if noted is not None:
        return noted
    for folder in (rollouts.parent / name for name in _FOLDERS):
        if any((folder / file).is_file() for file in _FILES):
            return str(folder)
    looked = " or ".join(f"{name}/" for name in _FOLDERS)
    raise TokenizerError(
        f"No tokenizer lies beside {str(rollouts)!r} (in {looked}): give one with --tokenizer."
    )


def _noted_senior(rollouts: Path) -> str | None:
    """The senior that ``tandem rollout`` noted, unless its folder is gone."""
    from tandem_plugin.rollouts.rollout_file import run_file

    try:
        senior = json.loads(run_file(rollouts).read_text(encoding="utf-8"))["senior"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    known = isinstance(senior, str) and (Path(senior).exists() or _is_hub_name(senior))
    return senior if known else None


def _is_hub_name(name: str) -> bool:
    """Whether ``name`` has the form owner/name and no local folder is called owner."""
    match = re.fullmatch(r"([\w-][\w.-]*)/[\w.-]+", name)
    return match is not None and not Path(match[1]).exists()
