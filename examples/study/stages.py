"""The stages of a study: each is done once, however often the study is started."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console


class StudyError(RuntimeError):
    """The study cannot go on; the message says why and what to do."""


class Stages:
    """Runs named stages of a study in ``folder``, and keeps a note of each one that is done.

    A stage whose note is there is not run again. A stage that was killed has none, and is: its work
    must be able to go on from whatever it left, or to begin anew. Its time counts where it could be
    noted before it ended.
    """

    def __init__(self, folder: Path, console: Console) -> None:
        self._notes = folder / "stages"
        self.console = console
        self.seconds: dict[str, float] = {}
        """How long each stage took, all starts of it together."""

    def run(self, name: str, work: Callable[[], Mapping[str, Any] | None]) -> dict[str, Any]:
        """What the stage's work returned, now or when it was done."""
        note = self._notes / f"{name}.json"
        if note.exists():
            found = json.loads(note.read_text(encoding="utf-8"))
            self.seconds[name] = float(found["seconds"])
            self.console.print(f"{name}: done before.", style="dim", markup=False)
            return dict(found["result"])
        self.console.print(f"{name} ...", style="bold", markup=False)
        stopped = self._notes / f"{name}.stopped"
        before = float(stopped.read_text(encoding="utf-8")) if stopped.exists() else 0.0
        began = time.monotonic()
        try:
            result = dict(work() or {})
        except BaseException:
            stopped.parent.mkdir(parents=True, exist_ok=True)
            stopped.write_text(str(before + time.monotonic() - began), encoding="utf-8")
            raise
        self.seconds[name] = before + time.monotonic() - began
        write_json(note, {"seconds": self.seconds[name], "result": result})
        stopped.unlink(missing_ok=True)
        self.console.print(f"{name}: {self.seconds[name]:.0f} s.", highlight=False, markup=False)
        return result


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
