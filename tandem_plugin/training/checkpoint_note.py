"""What a checkpoint says of the tandem run that wrote it: ``tandem.json`` beside its weights.

A run that resumes compares its settings with the note's; one that starts from an exported senior
learns from it that this model was trained beside another junior.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandem_plugin._version import __version__
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.files import parse_json, read_file, write_file
from tandem_plugin.files.trainers import trainers
from tandem_plugin.schedules import lets_junior_write

NOTE = "tandem.json"
"""The note's name in a checkpoint's folder, and in that of an exported senior."""


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """One run's settings, as far as they decide who writes and what is learned."""

    start: str
    """The model that the senior started from: an absolute path, or a name on the Hub."""
    settings: Mapping[str, Any]
    """Those of :meth:`TandemConfig.settings`."""
    fingerprint: str
    """That of the run's own rule."""
    version: str
    """tandem-plugin's."""

    @classmethod
    def of_run(cls, start: str, config: TandemConfig, fingerprint: str) -> CheckpointNote:
        """The note of a run whose senior started from the model ``start``."""
        settings = json.loads(json.dumps(config.settings()))
        return cls(_whole(start), settings, fingerprint, __version__)

    @classmethod
    def read(cls, folder: Path) -> CheckpointNote | None:
        """The note in a folder; None if there is none that can be read."""
        try:
            return cls.of_fields(parse_json(read_file(folder / NOTE)))
        except (OSError, ValueError):
            return None

    @classmethod
    def of_fields(cls, fields: Any) -> CheckpointNote | None:
        """The note with these fields, as :func:`dataclasses.asdict` has them; None for others."""
        try:
            note = cls(**fields)
        except TypeError:
            return None
        texts = (note.start, note.fingerprint, note.version)
        readable = all(isinstance(one, str) for one in texts) and isinstance(note.settings, dict)
        return note if readable else None

    def write(self, *folders: str | Path) -> None:
        """Write the note into each of the folders; raises :class:`OutputError`."""
        for folder in folders:
            write_file(Path(folder) / NOTE, json.dumps(asdict(self), indent=1) + "\n")

    @property
    def junior(self) -> str:
        """The junior's checkpoint."""
        return _whole(self.settings.get("junior") or self.start)

    def changes(self, before: CheckpointNote) -> list[str]:
        """What differs from an earlier note, each as ``name=value (was value)``."""
        new, old = (
            {**one.settings, "senior's start": one.start, "tandem-plugin": one.version,
             "fingerprint": one.fingerprint}
            for one in (self, before)
        )  # fmt: skip
        names = [*new, *(name for name in old if name not in new)]
        return [
            f"{name}={_shown(new, name)} (was {_shown(old, name)})"
            for name in names
            if _shown(new, name) != _shown(old, name)
        ]

    def check_resumed(self, folder: str | Path, before: CheckpointNote | None = None) -> None:
        """Say in the log what a resumed run changes; folder: of the checkpoint it resumes.

        before: the checkpoint's note, if it is known without the folder. Raises
        :class:`ConfigError` if the junior would change although no setting names one: it would be
        the model that the senior now starts from.
        """
        before = before or CheckpointNote.read(Path(folder))
        if before is None:
            print(
                f"tandem: the checkpoint {str(folder)!r} has no {NOTE}: it does not say whether, "
                "and with which settings, tandem wrote it.",
                flush=True,
            )
            return
        if self.junior != before.junior and self.settings.get("junior") is None:
            raise ConfigError(
                "checkpoint-tandem-dropped", folder=folder, junior=before.junior, now=self.junior
            )
        if changes := self.changes(before):
            print(
                f"tandem: resuming {str(folder)!r} with changes: {'; '.join(changes)}", flush=True
            )


def check_start(model: str, config: TandemConfig) -> None:
    """Check a run that starts anew from a model which a tandem run may have trained.

    model: a folder, or a name on the Hub. Raises :class:`ConfigError` if that senior would be its
    own junior without anyone having said so, and the junior can write, or if the run would repeat
    the earlier one's seeds.
    """
    before = _note_of_model(model)
    if before is None:
        return
    if config.junior is None and lets_junior_write(config.make_schedule()):
        raise ConfigError("senior-tandem-dropped", model=model, junior=before.junior)
    if config.seed == before.settings.get("seed"):
        raise ConfigError("seeds-reused-by-continuation", model=model, seed=config.seed)


def _note_of_model(model: str) -> CheckpointNote | None:
    folder = Path(os.path.realpath(os.path.expanduser(model)))
    if not model or not folder.is_dir():
        return None
    # Never of any other folder above: a run may write where its base model lies.
    return CheckpointNote.read(_checkpoint_of(folder))


def _checkpoint_of(folder: Path) -> Path:
    """The folder of the checkpoint that a trainer exported this model with; else the model's."""
    exports = (Path(trainer.export).parts for trainer in trainers() if trainer.export)
    depth = next((len(parts) for parts in exports if folder.parts[-len(parts) :] == parts), 0)
    return folder.parents[depth - 1] if depth else folder


def _whole(model: str) -> str:
    path = os.path.expanduser(model)
    return os.path.realpath(path) if os.path.exists(path) else model


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return json.dumps(settings.get(name))
