"""A checkpoint's record of the tandem run that wrote it: ``tandem.json`` next to its weights.

A run that resumes compares its settings with the note's; one that starts from an exported senior
learns from it that this model was trained with a different junior.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandem_plugin._version import __version__
from tandem_plugin.config import TandemConfig
from tandem_plugin.errors import ConfigError
from tandem_plugin.files import read_json, write_file
from tandem_plugin.files.checkpoints import mark_of
from tandem_plugin.files.trainers import trainers
from tandem_plugin.patching.versions import library_versions, trainer_versions
from tandem_plugin.schedules import lets_junior_write

NOTE = "tandem.json"
"""The note's name in the folder of a checkpoint or of an exported senior."""


_MODELS = ("senior's start", "junior")
"""The models of a note, by the names in messages."""


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """One run's settings, as far as they decide who writes and what is learned."""

    start: str
    """The model that the senior started from: an absolute path, or a name on the Hub."""
    settings: Mapping[str, Any]
    """Those of :meth:`TandemConfig.settings`."""
    fingerprint: str
    """The fingerprint of the run's own rule."""
    version: str
    """tandem-plugin's."""
    junior: str
    """The junior's checkpoint, as ``start``."""
    marks: Mapping[str, str | None]
    """What identifies the contents of both when the run began, by :data:`_MODELS`: see
    :func:`~tandem_plugin.files.checkpoints.mark_of`. None for a model that was not on the machine
    of the trainer's driver."""
    libraries: Mapping[str, str | None]
    """The versions of vLLM, torch, transformers and the trainer."""

    @classmethod
    def of_run(
        cls,
        start: str,
        config: TandemConfig,
        fingerprint: str,
        mark: Callable[[str], str | None] = mark_of,
    ) -> CheckpointNote:
        """The note of a run whose senior started from the model ``start``.

        mark: identifies a model's contents.
        """
        settings = json.loads(json.dumps(config.settings()))
        models = (_whole(start), _whole(config.junior or start))
        marks = {model: mark(model) for model in dict.fromkeys(models)}
        return cls(
            models[0],
            settings,
            fingerprint,
            __version__,
            models[1],
            {name: marks[model] for name, model in zip(_MODELS, models, strict=True)},
            library_versions() | trainer_versions(),
        )

    @classmethod
    def read(cls, folder: Path) -> CheckpointNote | None:
        """The note in a folder; None if there is none that can be read."""
        try:
            return cls.of_fields(read_json(folder / NOTE))
        except (OSError, ValueError):
            return None

    @classmethod
    def of_fields(cls, fields: Any) -> CheckpointNote | None:
        """The note with these fields, as :func:`dataclasses.asdict` has them; None for others."""
        try:
            note = cls(**fields)
        except TypeError:
            return None
        texts = (note.start, note.fingerprint, note.version, note.junior)
        mappings = (note.settings, note.marks, note.libraries)
        readable = all(isinstance(text, str) for text in texts)
        readable = readable and all(isinstance(mapping, dict) for mapping in mappings)
        return note if readable else None

    def write(self, *folders: str | Path) -> None:
        """Write the note into each of the folders; raises :class:`OutputError`."""
        for folder in folders:
            write_file(Path(folder) / NOTE, json.dumps(asdict(self), indent=1) + "\n")

    def changes(self, before: CheckpointNote) -> list[str]:
        """What differs from an earlier note, each as ``name=value (was value)``."""
        new, old = self._noted(), before._noted()
        return [
            f"{name}={json.dumps(new.get(name))} (was {json.dumps(old.get(name))})"
            for name in dict.fromkeys([*new, *old])
            if new.get(name) != old.get(name)
            # What a model was, or a library, may have been unknown.
            and (name in self.settings or None not in (new.get(name), old.get(name)))
        ]

    def _noted(self) -> dict[str, Any]:
        """Everything that a resumed run may change, by the names of messages."""
        is_named = self.settings.get("junior") is not None
        return {
            **self.settings,
            "junior": self.junior if is_named else None,
            "senior's start": self.start,
            **{f"contents of the {name}": mark for name, mark in self.marks.items()},
            "tandem-plugin": self.version,
            **self.libraries,
            "fingerprint": self.fingerprint,
        }

    def check_resumed(self, folder: str | Path, before: Mapping[str, Any] | None = None) -> None:
        """Say in the log what a resumed run changes; folder: of the checkpoint it resumes.

        before: the fields of the checkpoint's note, if they are known without the folder. Raises
        :class:`ConfigError` if the junior would be a different model although no setting names it:
        the one that the senior now starts from, or what has taken the junior's place.
        """
        noted = CheckpointNote.of_fields(before) if before else None
        noted = noted or CheckpointNote.read(Path(folder))
        if noted is None:
            print(
                f"tandem: the checkpoint {str(folder)!r} has no {NOTE}: it does not say whether, "
                "and with which settings, tandem wrote it.",
                flush=True,
            )
            return
        self._check_junior(folder, noted)
        if changes := self.changes(noted):
            print(
                f"tandem: resuming {str(folder)!r} with changes: {'; '.join(changes)}", flush=True
            )

    def _check_junior(self, folder: str | Path, before: CheckpointNote) -> None:
        """Raise :class:`ConfigError` if the junior changes and its setting does not."""
        marks = self.marks.get("junior"), before.marks.get("junior")
        places = self.junior, before.junior
        now, was = places if None in marks else marks
        junior = self.settings.get("junior")
        if now == was or (junior is not None and junior != before.settings.get("junior")):
            return
        if junior is None and self.junior != before.junior:
            raise ConfigError(
                "checkpoint-tandem-dropped", folder=folder, junior=before.junior, now=self.junior
            )
        raise ConfigError("junior-replaced", folder=folder, junior=junior or self.junior)


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
