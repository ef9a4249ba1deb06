"""A model of an evaluation: its name, its location, and a fingerprint of its content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.errors import EvaluationError
from tandem_plugin.files import check_model
from tandem_plugin.files.checkpoints import checkpoint_folder, fingerprint_checkpoint
from tandem_plugin.lab.evaluation.benchmark import checked_name

__all__ = ["Checkpoint", "check_same_vocabulary", "find_checkpoint", "named_path", "pieces_of"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One model. Its fingerprint depends neither on its name nor on its location."""

    name: str
    path: str
    fingerprint: str


def find_checkpoint(given: str) -> Checkpoint:
    """A model from ``NAME=PATH``, a folder, or a name on the Hugging Face Hub, or name@commit.

    The default name is that of the folder. Raises :class:`EvaluationError` or :class:`ConfigError`
    if there is no model.
    """
    name, path = named_path(given)
    revision = None
    if not Path(path).is_dir():
        path, _, revision = path.partition("@")
        check_model(path, "model")
    resolved = checkpoint_folder(path, revision or None).resolve()
    return Checkpoint(checked_name(name, "model"), str(resolved), fingerprint_folder(resolved))


def named_path(given: str) -> tuple[str, str]:
    """The name and the place of ``NAME=PATH``; a path alone is called by its last part."""
    name, equals, path = given.partition("=")
    return (name, path) if equals else (Path(given).name, given)


def fingerprint_folder(folder: Path) -> str:
    """The fingerprint of a checkpoint's folder: see :func:`fingerprint_checkpoint`.

    Raises :class:`EvaluationError` for a folder without a ``config.json`` or weights.
    """
    names = [file.name for file in folder.iterdir()]
    if "config.json" not in names or not any(n.endswith((".safetensors", ".bin")) for n in names):
        raise EvaluationError("TP826", folder=folder)
    return fingerprint_checkpoint(folder)


def pieces_of(path: str) -> tuple[str, ...]:
    """The vocabulary of a model: the piece of every token id."""
    return Vocabulary.from_path(path).pieces


def check_same_vocabulary(senior: Checkpoint, junior: Checkpoint) -> None:
    """Raise :class:`EvaluationError` unless the models share their token ids."""
    if pieces_of(senior.path) != pieces_of(junior.path):
        raise EvaluationError("TP827", senior=senior.name, junior=junior.name)
