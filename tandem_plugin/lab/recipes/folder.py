"""The folder of a run: which run it is of, one start at a time, and its end.

``run.json`` has what defines the run; the same recipe resumes it, any other is rejected. ``done``
has the steps of a run that has ended, ``senior`` leads to its best senior. ``command`` and
``packages`` have each command that ran and every package, the newest last.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import IO, Any

from tandem_plugin.errors import ConfigError, OutputError
from tandem_plugin.files import lock_file, read_file, read_json, system_reason, write_file
from tandem_plugin.files.checkpoints import mark_checkpoint
from tandem_plugin.lab.recipes.data import RunData
from tandem_plugin.lab.recipes.run import Run

NOTE, DONE, SENIOR, LOG = "run.json", "done", "senior", "train.log"
_LOCK = ".lock"

_FREE = frozenset(
    {
        "version",
        "model",
        "junior",
        "train",
        "validation",
        "problems",
        "heldout",
        "field",
        "map",
        "reward",
        "steps",
    }
    | {"gpus", "micro_batch", "save_every", "out", "benchmarks", "arguments", "tandem", "protocol"}
)
"""Settings that are noted as what they lead to, or may change between two parts of a run."""


def note_of(run: Run, data: RunData) -> dict[str, Any]:
    """What defines a run, by name: settings, and marks of what models and files contain."""
    settings = run.recipe.model_dump(mode="json")
    return {
        **{name: value for name, value in settings.items() if name not in _FREE},
        "model": marked(run.model),
        "junior": None if run.junior is None else marked(run.junior),
        "data": data.marks(),
        "reward": [f"{reward} {_digest(reward.file)}" for reward in run.rewards] or "math",
        "tandem": {name: v for name, v in (run.tandem or {}).items() if name != "junior"},
        "protocol": {"name": run.recipe.protocol, **run.protocol, "steps": None},
        "arguments": list(run.arguments),
    }


def marked(model: str) -> str:
    """A model's folder, with links resolved, and a mark of its files; a name on the Hub as it is.

    Raises :class:`ConfigError` for a file that cannot be read.
    """
    if not os.path.exists(model):
        return model
    place = Path(os.path.realpath(model))
    try:
        return f"{place} ({mark_checkpoint(place)})"
    except OSError as error:
        raise ConfigError(
            "model-file-unreadable",
            what="model",
            model=model,
            file=Path(str(error.filename)).name,
            reason=system_reason(error),
        ) from error


def _digest(file: Path) -> str:
    return hashlib.sha256(read_file(file)).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @contextmanager
    def locked(self) -> Iterator[IO[bytes]]:
        """Keep other starts from this folder; the lock is held while any process has the file.

        Raises :class:`OutputError` for a folder that cannot be written, or that a run is writing
        to; see :func:`~tandem_plugin.files.lock_file`.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / _LOCK).open("ab")
        except OSError as error:
            reason = system_reason(error)
            raise OutputError("file-unwritable", path=self.path, reason=reason) from error
        with lock:
            if not lock_file(lock, self.path):
                raise OutputError("run-folder-locked", folder=self.path)
            yield lock

    def check(self, note: Mapping[str, Any], steps: int) -> None:
        """Raise :class:`ConfigError` if the folder has a different run, or one of more steps.

        A command that failed before it left anything may be corrected.
        """
        before = self._note()
        if before is not None and self._has_results():
            differences = list(_differences(before, json.loads(json.dumps(note))))
            if differences:
                raise ConfigError(
                    "run-folder-differs", folder=self.path, differences="\n".join(differences)
                )
        if (done := self.done) is not None and done > steps:
            raise ConfigError("run-has-more-steps", folder=self.path, done=done, steps=steps)

    @property
    def done(self) -> int | None:
        """The steps of a run that has ended."""
        with suppress(OSError, ValueError):
            return int(read_file(self.path / DONE))
        return None

    def begin(self, note: Mapping[str, Any], command: str) -> None:
        """Note what defines the run, the command, and the packages that it runs with."""
        write_file(self.path / NOTE, json.dumps(note, indent=1) + "\n")
        packages = sorted(
            {f"{package.metadata['Name']}=={package.version}" for package in distributions()},
            key=str.lower,
        )
        for name, text in (("command", command), ("packages", "\n".join(packages) + "\n")):
            with (self.path / name).open("a", encoding="utf-8") as file:
                file.write(f"# {datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}\n{text}")

    def finish(self, senior: Path, steps: int) -> None:
        """Let ``senior`` lead to the best one, and note that the run has ended."""
        link = self.path / SENIOR
        if link.is_symlink():
            link.unlink()
        link.symlink_to(os.path.relpath(senior, self.path))
        write_file(self.path / DONE, f"{steps}\n")

    def _note(self) -> dict[str, Any] | None:
        try:
            note = read_json(self.path / NOTE)
        except (OSError, ValueError):
            return None
        return note if isinstance(note, dict) else None

    def _has_results(self) -> bool:
        """Whether a trainer wrote anything that a run resumes or ends with."""
        if (self.path / DONE).exists():
            return True
        places = ("checkpoints", "rollouts", "seniors", "export", "last")
        return any(file.is_file() for name in places for file in (self.path / name).rglob("*"))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A line for each name whose values differ: what the folder has, and what the recipe has."""
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from (f"  {name}.{line.strip()}" for line in _differences(old, new))
        elif old != new:
            yield f"  {name}: {json.dumps(old)} there, {json.dumps(new)} here"
