"""Where nothing is: what to say of a path, and of a model's name, that leads nowhere."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from tandem_plugin.errors import ConfigError

__all__ = ["check_model", "is_hub_name", "look_again"]

_LONGEST_NAME = 96
"""The most characters of an owner's or a repository's name on the Hub."""


def look_again(path: str | Path) -> str:
    """What to do about a path where nothing is: a sentence, with the nearest name that there is."""
    near = _nearest(Path(path))
    if near is not None:
        return f"Did you mean {str(near)!r}?"
    if os.path.isabs(path):
        return "Check the path."
    return f"Check the path, which begins at {os.getcwd()!r}."


def check_model(model: str, what: str) -> None:
    """Raise :class:`ConfigError` where ``model`` is no checkpoint and cannot be the name of one.

    what: how it is called, ``senior``. A name that could be one on the Hub is not looked up there:
    that is the engine's to do, and takes half a minute to fail.
    """
    model = os.path.expanduser(model)
    if os.path.isdir(model):
        if not any((Path(model) / name).exists() for name in ("config.json", "params.json")):
            inside = sorted(file.parent for file in Path(model).glob("*/config.json"))
            near = f" Did you mean {str(inside[0])!r}?" if len(inside) == 1 else ""
            raise ConfigError("TP761", what=what, model=model, near=near)
        return
    if os.path.exists(model) or "://" in model:
        return
    near_by = _nearest(Path(model))
    if near_by is None and (is_hub_name(model) or _is_single_name(model)):
        return
    raise ConfigError("TP762", what=what, model=model, hint=look_again(model))


def is_hub_name(name: str) -> bool:
    """Whether ``name`` has the form owner/name and no local folder is called owner."""
    match = re.fullmatch(r"([\w-][\w.-]*)/([\w.:-]+)", name)
    if match is None or max(map(len, match.groups())) > _LONGEST_NAME:
        return False
    return not os.path.exists(match[1])


def _is_single_name(name: str) -> bool:
    """Old names on the Hub have no owner: gpt2."""
    return re.fullmatch(r"[\w-][\w.-]*", name) is not None


def _nearest(path: Path) -> Path | None:
    """The path with its first part that is not there in the nearest spelling that is."""
    parts = path.parts
    for count in range(1, len(parts) + 1):
        whole = Path(*parts[:count])
        if whole.exists():
            continue
        parent = whole.parent
        try:
            names = [entry.name for entry in os.scandir(parent)]
        except OSError:
            return None
        near = difflib.get_close_matches(whole.name, names, n=1, cutoff=0.75)
        found = parent.joinpath(near[0], *parts[count:]) if near else None
        return found if found is not None and found.exists() else None
    return None
