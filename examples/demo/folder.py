"""The folder of one demo: one program at a time writes to it, and only for one set of options.

The same command resumes a demo that was stopped; nothing of another one is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tandem_plugin import __version__
from tandem_plugin.files import lock_file, write_file

NOTE = "demo.json"
_LOCK = ".lock"


class FolderError(RuntimeError):
    """The folder belongs to another demo; the message says to which, and what to do."""


@contextmanager
def claimed(out: Path, options: Mapping[str, Any]) -> Iterator[bool]:
    """While the demo runs, the folder is this program's; yields whether it resumes one.

    options: what defines the run. Raises :class:`FolderError` if another demo runs in the folder,
    if it was made with other options, or if it has files of something else.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out / _LOCK).open("ab") as lock:  # which no child inherits
        if not lock_file(lock, out):
            raise FolderError(
                f"Another demo is running in {out}. Its log is {out / 'train.log'}; give this one "
                "a folder of its own: --out FOLDER, or make demo OUT=FOLDER."
            )
        yield _is_resumed(out, {**options, "version": __version__})


def _is_resumed(out: Path, options: Mapping[str, Any]) -> bool:
    note = out / NOTE
    if not note.exists():
        if others := sorted({one.name for one in out.iterdir()} - {_LOCK}):
            raise FolderError(
                f"{out} contains {others[0]} and no {NOTE}: no demo of this version wrote it. "
                "Give this one another folder, or remove that one."
            )
        write_file(note, json.dumps(options, indent=1) + "\n")
        return False
    before = json.loads(note.read_text(encoding="utf-8"))
    if before.keys() != options.keys():
        differing = ", ".join(sorted(before.keys() ^ options.keys()))
        raise FolderError(
            f"{out} is the folder of another kind of demo, or of the version before: only one of "
            f"the two has {differing}. Give this one another folder, or remove that one."
        )
    if names := [name for name in options if before[name] != options[name]]:
        differences = ", ".join(f"{name}={before[name]} (here {options[name]})" for name in names)
        raise FolderError(
            f"{out} is the folder of another demo: {differences}. Give this one another folder, "
            "or remove that one."
        )
    return True
