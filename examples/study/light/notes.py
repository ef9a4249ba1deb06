"""The notes that a study goes on by: each file is written whole, for one set of settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class StudyError(RuntimeError):
    """The study cannot go on; the message says why and what to do."""


def write_json(path: Path, value: object) -> None:
    """Writes a JSON file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Notes the study's settings, or refuses a folder that was begun with other ones.

    Raises:
        StudyError: the folder holds a study with other settings.
    """
    wanted = json.loads(json.dumps(settings))
    if not path.exists():
        write_json(path, wanted)
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    if differing:
        raise StudyError(
            f"{path.parent} holds a study with other settings ({', '.join(differing)}): give "
            "another folder with --out, or remove this one."
        )
