"""A stand-in for ``uv run``, by whose name Ray knows it and runs its workers with it as well."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

__all__ = ["stand_in", "started"]


def stand_in(folder: Path) -> dict[str, str]:
    """Make ``uv`` in a new folder; return the environment in which it is found.

    Ray looks for an ancestor whose command line begins with ``uv run``: that is a shell under this
    name, and ``run`` a script on the PATH, as which the shell takes its first argument. It runs
    ``python`` as this one, whatever options stand before it, and stays its parent as uv does.
    """
    folder.mkdir()
    (folder / "uv").symlink_to("/bin/bash")
    (folder / "run").write_text(
        f'echo "$*" >> {shlex.quote(str(folder / "started"))}\n'
        'while [ "$1" != python ]; do shift; done\n'
        f'shift\n{shlex.quote(sys.executable)} "$@"\n'
    )
    here = str(Path(sys.executable).parent)
    return {"PATH": os.pathsep.join([str(folder), here, os.environ["PATH"]])}


def started(folder: Path) -> list[str]:
    """What followed ``uv run`` each time that it was started."""
    return (folder / "started").read_text().splitlines()
