"""What installed adapters say of their trainers, for processes in which they are not imported.

An adapter is a package ``tandem_<trainer>`` with a file ``trainer.json``, which is found on
``sys.path`` without importing the package: engines' processes ask it which trainer they belong to.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = "trainer.json"


@dataclass(frozen=True, slots=True)
class Trainer:
    """One trainer; the fields are those of the file."""

    name: str
    """As its adapter knows it (:mod:`tandem_plugin.patching.in_place`)."""
    engine: str
    """A module that a process with an engine of this trainer has loaded, and no other."""
    command: str
    """How a run in tandem is started."""
    in_engines: bool = False
    """Whether the adapter must be active in these processes, where requests name their authors."""
    if_inactive: str = ""
    """What to check if it is not."""
    drops_variable: bool = True
    """Whether the trainer's own command ignores ``TANDEM_CONFIG``: not where its adapter sees every
    start, and processes may have engines that are not the senior's."""
    settings: str = ""
    """``module:function`` of the adapter: where this process's command has settings of tandem that
    the trainer's own command drops, or an empty text. Takes the command's arguments."""
    export: str = ""
    """Where the trainer exports a model to, below a checkpoint's folder."""


@cache
def trainers() -> tuple[Trainer, ...]:
    """Those with an adapter in this environment."""
    files: dict[str, Path] = {}
    for place in sys.path:
        for file in sorted(Path(place).glob(f"tandem_*/{FILE}")):
            files.setdefault(file.parent.name, file)
    return tuple(Trainer(**json.loads(file.read_text("utf-8"))) for file in files.values())


def trainers_of_engine() -> list[Trainer]:
    """The trainers that this process has an engine of."""
    return [trainer for trainer in trainers() if trainer.engine in sys.modules]
